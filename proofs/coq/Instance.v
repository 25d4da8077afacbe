(** What it takes to be an instance of the lemma.

    A rule is an instance if, draft by draft, what it emits has the law of what [one_by_one] emits.
    Drafts that cannot be drawn do not count ([possible]): on these a rule may divide by zero. On
    the others a node of weight 1 always accepts ([sure]). *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Identities Draft Target Lemma.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Instance.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Local Notation verdict := (option text).
Variable declared : declaration R T.

(** Every token has a positive chance under the law declared for it. *)
Fixpoint possible (d : draft T) (ctx before : text) : Prop :=
  match d with
  | Last => True
  | Child x below next =>
      [/\ x \in V, is_law V (declared ctx before x), declared ctx before x x != 0,
          possible below (rcons ctx x) [::] & possible next ctx (rcons before x)]
  end.

(** Drafters that tell the truth grow possible drafts only. *)
Lemma eq_expect_truthful pl ctx before f g :
  truthful V declared pl ctx before -> (forall d, possible d ctx before -> f d = g d) ->
  expect (grow V pl) f = expect (grow V pl) g.
Proof.
elim: pl ctx before f g => [|s below ihb next ihn] ctx before f g /=; first by move=> _; apply.
move=> [s_law h] fg; rewrite !totalE big_seq [RHS]big_seq; apply: eq_bigr => x xV.
have [->|sx] := eqVneq (s x) 0; first by rewrite !mul0r.
have [ds hb hn] := h x xV sx; rewrite !expect_bind; congr (_ * _).
apply: ihb hb _ => b pb; rewrite !expect_bind; apply: ihn (hn b) _ => d pd /=.
apply: fg; split=> //; last by rewrite ds.
by split=> [y|]; [rewrite ds s_law.1 | rewrite massE (eq_bigr _ (fun y _ => ds y)) -massE s_law.2].
Qed.

Section Refusal.
Variables (owed s : T -> R).
Hypothesis owed_law : is_law V owed.
Hypothesis s_law : is_law V s.

(** If nothing is left to those who come after a refusal, there is none. *)
Lemma nothing_left x :
  x \in V -> s x != 0 -> mass V (left owed s) = 0 -> Num.min 1 (owed x / s x) = 1.
Proof.
move=> xV sx S0; have fits y : y \in V -> owed y <= s y.
  by move=> yV; rewrite -subr_le0 -(mass0_on (left_ge0 owed s) S0 yV) le_maxr lexx.
apply/min_idPl; rewrite ler_pdivl_mulr ?lt_neqAle 1?eq_sym ?sx ?s_law.1 // mul1r.
have: \sum_(y <- V) (s y - owed y) = 0.
  by rewrite sumrB -!massE owed_law.2 s_law.2 subrr.
move=> /eqP; rewrite big_seq psumr_eq0 => [/allP/(_ x xV)|y yV]; last by rewrite subr_ge0 fits.
by rewrite xV subr_eq0 => /eqP->.
Qed.

Lemma refused_law : mass V (left owed s) != 0 -> is_law V (refused V owed (left owed s)).
Proof.
rewrite /refused owed_law.2 subrr addr0 => S0.
exact: (normalise_law (left_ge0 owed s) S0).
Qed.

End Refusal.

Definition agree (F G : verdict -> R) : Prop := forall out, F (Some out) = G (Some out).

Variable commit : (R -> program R verdict) -> R -> program R verdict.
Variable p : text -> T -> R.
Hypothesis p_law : forall ctx, is_law V (p ctx).

(** A child of weight 1 is accepted if it accepts itself. *)
Definition commits_surely : Prop :=
  forall (f : R -> program R verdict) F G,
    expect (f 1) F = expect (f 1) G -> expect (commit f 1) F = expect (commit f 1) G.

Hypothesis commit_sure : commits_surely.

Lemma sure d ctx before owed F G :
  possible d ctx before -> is_law V owed -> agree F G ->
  expect (one_by_one V commit p declared d ctx before owed) F
  = expect (one_by_one V commit p declared d ctx before owed) G.
Proof.
elim: d ctx before owed F G => [|x below ihb next ihn] ctx before owed F G.
  move=> _ o_law FG; rewrite [one_by_one _ _ _ _ _ _ _ _]/= /here !expect_flip !expect_draw.
  rewrite o_law.2 subrr !mul0r !addr0; congr (_ * _); apply: eq_bigr => y _ /=.
  by rewrite FG.
move=> /= [xV s_law sx pb pn] o_law FG; rewrite !expect_bind.
have [S0|S0] := eqVneq (mass V (left owed (declared ctx before x))) 0.
  rewrite (nothing_left o_law s_law xV sx S0); apply: commit_sure.
  apply: ihb => // [|out]; last exact: FG.
  split=> [y|]; first by rewrite mul1r (p_law _).1.
  by rewrite massE; under eq_bigr do rewrite mul1r; rewrite -massE (p_law _).2.
apply: eq_expect => -[out|] /=; first exact: FG.
by apply: ihn => //; apply: refused_law.
Qed.

End Instance.

Section Commitments.
Variables (R : realFieldType) (T : eqType).

Lemma deferred_surely : commits_surely (@deferred R T).
Proof. by []. Qed.

Lemma immediate_surely : commits_surely (@immediate R T).
Proof. by move=> f F G fFG; rewrite /immediate !expect_flip fFG subrr !mul0r. Qed.

End Commitments.
