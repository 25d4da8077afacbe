(** 9. Feasible plans are right: specref/lemma.py's [divided].

    A plan pi(t, y) says how much of the mass of tuple t is emitted as its member y: no more than
    there is of t, and no more than is owed of y. Of equal siblings the first takes the share. So
    any solution of the transport problem will do in [planned_9], optimal or not, and for another
    plan it is enough to see that it is feasible. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target Lemma Planned.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Feasible.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Local Notation row := (T -> R).
Hypothesis uV : uniq V.

(** What each member takes, of equal ones the first. *)
Fixpoint first_takes (g : row) (seen t : text) : seq R :=
  if t is x :: rest then (if x \in seen then 0 else g x) :: first_takes g (x :: seen) rest
  else [::].

Lemma size_first_takes g seen t : size (first_takes g seen t) = size t.
Proof. by elim: t seen => [//|x t ih] seen /=; rewrite ih. Qed.

Lemma first_takes_ge0 g seen t :
  (forall y, 0 <= g y) -> all (fun a => 0 <= a) (first_takes g seen t).
Proof. by move=> g0; elim: t seen => [//|x t ih] seen /=; rewrite ih andbT; case: ifP. Qed.

Lemma zip_first_takes g f seen t :
  all (mem V) t ->
  \sum_(ax <- zip (first_takes g seen t) t) ax.1 * f ax.2
  = \sum_(y <- V) (if (y \in t) && (y \notin seen) then g y * f y else 0).
Proof.
elim: t seen => [|x t ih] seen /=; first by rewrite big_nil big1.
move=> /andP[xV tV]; rewrite big_cons ih //=.
rewrite -[(if x \in seen then 0 else g x) * f x](point_sum (fun y =>
  (if y \in seen then 0 else g y) * f y) uV xV) -big_split.
apply: eq_bigr => y _ /=; rewrite !inE /point; case: eqP => [->|_] /=.
  by rewrite mul1r andbF addr0; case: ifP => _; rewrite ?mul0r.
by rewrite mul0r add0r.
Qed.

Variables (among : text -> seq text) (mu : text -> text -> R).
Variable pi : text -> row -> text -> row.

Definition shares_of (ctx : text) (owed : row) (t : text) : seq R :=
  first_takes (fun y => pi ctx owed t y / mu ctx t) [::] t.

Definition besides_of (ctx : text) (owed : row) : row :=
  fun y => owed y - \sum_(t <- among ctx) pi ctx owed t y.

Definition feasible (ctx : text) (owed : row) : Prop :=
  [/\ forall t y, 0 <= pi ctx owed t y,
      forall t y, y \notin t -> pi ctx owed t y = 0,
      forall t, t \in among ctx -> all (mem V) t,
      forall t, t \in among ctx -> mass V (pi ctx owed t) <= mu ctx t
    & forall y, \sum_(t <- among ctx) pi ctx owed t y <= owed y].

Theorem feasible_9 ctx owed :
  (forall t, 0 <= mu ctx t) -> feasible ctx owed ->
  plans V shares_of besides_of (among ctx) (mu ctx) ctx owed.
Proof.
move=> mu0 [pi0 members inV rows columns].
have taken f t : t \in among ctx ->
    mu ctx t * (\sum_(ax <- zip (shares_of ctx owed t) t) ax.1 * f ax.2)
    = \sum_(y <- V) pi ctx owed t y * f y.
  move=> tA; rewrite zip_first_takes; last exact: inV.
  rewrite big_distrr big_seq [RHS]big_seq; apply: eq_bigr => y yV /=; rewrite andbT.
  case: ifP => [_|/negbT no]; last by rewrite members // mulr0 mul0r.
  have [m0|m0] := eqVneq (mu ctx t) 0; last by rewrite mulrA mulrCA divff // mulr1.
  have p0 : mass V (pi ctx owed t) = 0.
    by apply/eqP; rewrite eq_le mass_ge0 // andbT -m0 rows.
  by rewrite m0 mul0r (mass0_on (pi0 t) p0 yV) mul0r.
split=> [y|t tA m0|f].
- by rewrite subr_ge0.
- have ge0 : all (fun a => 0 <= a) (shares_of ctx owed t).
    by apply: first_takes_ge0 => y; rewrite divr_ge0.
  have same : size (shares_of ctx owed t) = size t by exact: size_first_takes.
  split=> //; first exact: inV.
  have mt : 0 < mu ctx t by rewrite lt_neqAle eq_sym m0 mu0.
  rewrite -(ler_pmul2l mt) mulr1; apply: le_trans (rows t tA).
  rewrite massE; under [X in _ <= X]eq_bigr do rewrite -[pi _ _ _ _]mulr1.
  rewrite -(taken (fun _ => 1)) //; under [X in _ <= _ * X]eq_bigr do rewrite mulr1.
  by rewrite -(big_map (fun ax => ax.1) xpredT id) -/unzip1 unzip1_zip // same.
- have -> : \sum_(t <- among ctx)
        mu ctx t * (\sum_(ax <- zip (shares_of ctx owed t) t) ax.1 * f ax.2)
      = \sum_(t <- among ctx) \sum_(y <- V) pi ctx owed t y * f y.
    by rewrite big_seq [RHS]big_seq; apply: eq_bigr => t tA; exact: taken.
  rewrite exchange_big -big_split; apply: eq_bigr => y _ /=.
  by rewrite -mulr_suml -mulrDl /besides_of addrC subrK.
Qed.

End Feasible.
