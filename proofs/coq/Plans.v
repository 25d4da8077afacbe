(** 9. Optimal transport at one node, in the form of plans: specref/transport.py.

    Siblings are drafted together, from any law mu of tuples. A coupling says how much of the mass
    of each tuple is emitted as which token; its marginals are mu and p. Any coupling is lossless,
    and the mass that it emits through drafted tokens is bounded by every set H of tokens. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Target.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Plans.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Variable p : text -> T -> R.
Variable ctx : text.

(** What is drafted: tuples of siblings, or trees; [members] are the tokens of the siblings. *)
Variables (D : Type) (drafts : seq D) (members : D -> seq T).
Variable mu : D -> R.
Variable pi : D -> T -> R.

Definition coupling : Prop :=
  [/\ forall d y, 0 <= pi d y,
      forall d, mass V (pi d) = mu d
    & {in V, forall y, \sum_(d <- drafts) pi d y = p ctx y}].

(** Emit y with the share that it has of the draft's mass, and go on behind it as [next] does. *)
Definition by_plan (next : D -> T -> program R text) : program R text :=
  Draw drafts mu (fun d =>
    Draw V (fun y => pi d y / mu d) (fun y => emit y (next d y))).

Hypothesis plan : coupling.

(** Below an accepted sibling the round may go on, with any lossless program. *)
Theorem any_coupling_9 next :
  (forall d y, lossless V p (rcons ctx y) (next d y)) -> lossless V p ctx (by_plan next).
Proof.
have [pi0 rows columns] := plan; move=> below v fv; rewrite /by_plan expect_draw (fair_at fv).
transitivity (\sum_(d <- drafts) \sum_(y <- V) pi d y * v (rcons ctx y)).
  apply: eq_bigr => d _; rewrite expect_draw big_distrr big_seq [RHS]big_seq /=.
  apply: eq_bigr => y yV; rewrite expect_emit mulrA.
  have -> : mu d * (pi d y / mu d) = pi d y.
    have [m0|m0] := eqVneq (mu d) 0; last by rewrite mulrCA divff // mulr1.
    by rewrite m0 mul0r (mass0_on (pi0 d) _ yV) // rows m0.
  congr (_ * _); rewrite -(below d y v (fair_rcons y fv)).
  by apply: eq_expect => more /=; rewrite cat_rcons.
rewrite exchange_big big_seq [RHS]big_seq; apply: eq_bigr => y yV.
by rewrite -mulr_suml columns.
Qed.

(** Nothing more than one token is the least that may follow. *)
Corollary one_position_9 : lossless V p ctx (by_plan (fun _ _ => Ret [::])).
Proof. by apply: any_coupling_9 => d y v fv; rewrite /= cats0. Qed.

(** The accepted mass is at most p(H) + mu(drafts with a member outside H). *)
Theorem accepted_9 (H : pred T) :
  \sum_(d <- drafts) \sum_(y <- V | y \in members d) pi d y
  <= \sum_(y <- V | H y) p ctx y + \sum_(d <- drafts | ~~ all H (members d)) mu d.
Proof.
have [pi0 rows columns] := plan.
have -> : \sum_(y <- V | H y) p ctx y = \sum_(d <- drafts) \sum_(y <- V | H y) pi d y.
  rewrite exchange_big /= big_seq_cond [RHS]big_seq_cond.
  by apply: eq_bigr => y /andP[yV _]; rewrite columns.
rewrite [X in _ + X]big_mkcond -big_split; apply: ler_sum => d _ /=.
have sub (A B : pred T) : (forall y, A y -> B y) ->
    \sum_(y <- V | A y) pi d y <= \sum_(y <- V | B y) pi d y.
  move=> AB; rewrite big_mkcond [leRHS]big_mkcond; apply: ler_sum => y _.
  by case: ifP => [/AB->|_] //; case: ifP.
case: (boolP (all H (members d))) => [/allP inH|_] /=; first by rewrite addr0; apply: sub.
rewrite ler_paddl ?sumr_ge0 // -rows massE; exact: sub.
Qed.

End Plans.
