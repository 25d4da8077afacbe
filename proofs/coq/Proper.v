(** Programs draw from laws.

    An expectation makes sense for weights of any sign and sum. So it is proved apart that wherever
    a round gets with positive probability, it draws from weights that are >= 0 and sum to 1; hence
    what it emits has a law: masses >= 0 that sum to 1. (specref checks this on every draw.) *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target Lemma Instance.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Proper.
Variable R : realFieldType.

Fixpoint proper A (m : program R A) : Prop :=
  match m with
  | Ret _ => True
  | Draw _ among w next =>
      [/\ forall b, 0 <= w b, total among w = 1
        & forall b, List.In b among -> w b != 0 -> proper (next b)]
  end.

Lemma total_in B (among : seq B) f g :
  (forall b, List.In b among -> f b = g b) -> total among f = total among g :> R.
Proof.
by elim: among => [//|b s ih] fg /=; rewrite fg ?ih //=; [move=> c cs; apply: fg; right | left].
Qed.

Lemma proper_const A (m : program R A) c : proper m -> expect m (fun _ => c) = c.
Proof.
elim: m => [//|B among w next ih] /= [_ w1 h].
transitivity (total among (fun b => w b * c)); last by rewrite totalE -mulr_suml -totalE w1 mul1r.
apply: total_in => b bA; have [->|wb] := eqVneq (w b) 0; first by rewrite !mul0r.
by rewrite ih //; apply: h.
Qed.

Lemma proper_ge0 A (m : program R A) f : proper m -> (forall a, 0 <= f a) -> 0 <= expect m f.
Proof.
move=> + f0; elim: m => [a|B among w next ih] /=; first by [].
case=> w0 _ h; rewrite (@total_in _ _ _ (fun b => Num.max 0 (w b * expect (next b) f))).
  by rewrite totalE sumr_ge0 // => b _; rewrite le_maxr lexx.
move=> b bA; apply/esym/max_idPr; have [->|wb] := eqVneq (w b) 0; first by rewrite mul0r.
by rewrite mulr_ge0 ?ih //; apply: h.
Qed.

(** What a proper program emits has a law. *)
Theorem proper_law_4 (A : eqType) (m : program R A) :
  proper m -> (forall a, 0 <= law m a) /\ expect m (fun _ => 1) = 1.
Proof.
by move=> pm; split=> [a|]; [apply: proper_ge0 => // b; exact: ler0n | exact: proper_const].
Qed.

Lemma proper_bind A B (m : program R A) (k : A -> program R B) :
  proper m -> (forall a, proper (k a)) -> proper (bind m k).
Proof.
move=> + pk; elim: m => [a|C among w next ih] /=; first by [].
by case=> w0 w1 h; split=> // b bA wb; apply: ih; apply: h.
Qed.

Lemma proper_bindA A B C (m : program R A) (k : A -> program R B) (l : B -> program R C) :
  proper (bind m (fun a => bind (k a) l)) -> proper (bind (bind m k) l).
Proof.
elim: m => [//|D among w next ih] /= [w0 w1 h]; split=> // b bA wb; apply: ih; exact: h.
Qed.

Lemma proper_flip A c (yes no : program R A) :
  0 <= c <= 1 -> (c != 0 -> proper yes) -> (1 - c != 0 -> proper no) -> proper (flip c yes no).
Proof.
move=> /andP[c0 c1] py pn; split=> [[]| |[] _] //=; first by rewrite subr_ge0.
by rewrite addr0 addrC subrK.
Qed.

Variables (T : eqType) (V : seq T).
Local Notation text := (seq T).

Lemma proper_draw A w (next : T -> program R A) :
  is_law V w -> (forall x, x \in V -> w x != 0 -> proper (next x)) -> proper (Draw V w next).
Proof.
case=> w0 w1 h; split=> // x xV wx; apply: h => //.
by elim: V xV {w1} => [//|y s ih] /= [->|/ih]; rewrite inE ?eqxx // => ->; rewrite orbT.
Qed.

Lemma grow_proper declared pl ctx before : truthful V declared pl ctx before -> proper (grow V pl).
Proof.
elim: pl ctx before => [//|s below ihb next ihn] ctx before [s_law h].
apply: proper_draw => // x xV sx; have [_ hb hn] := h x xV sx.
apply: proper_bind => [|child]; first exact: ihb hb.
by apply: proper_bind => //; exact: ihn (hn child).
Qed.

Variable p : text -> T -> R.
Hypothesis p_law : forall ctx, is_law V (p ctx).
Variable declared : declaration R T.
Variable commit : (R -> program R (option text)) -> R -> program R (option text).

(** Commitment is proper if it asks the child for weights in [0, 1] alone. *)
Definition commits_properly : Prop := forall f weight,
  0 <= weight <= 1 -> (forall w, 0 <= w <= 1 -> proper (f w)) -> proper (commit f weight).

Hypothesis commit_proper : commits_properly.

Lemma here_proper owed :
  (forall y, 0 <= owed y) -> mass V owed <= 1 -> proper (here V owed).
Proof.
move=> o0 o1; apply: proper_flip => // [|m0]; first by rewrite mass_ge0.
by apply: proper_draw => //; exact: normalise_law.
Qed.

Theorem one_by_one_proper_4 d ctx before owed :
  possible V declared d ctx before -> (forall y, 0 <= owed y) -> mass V owed <= 1 ->
  proper (one_by_one V commit p declared d ctx before owed).
Proof.
elim: d ctx before owed => [|x below ihb next ihn] ctx before owed.
  by move=> _ o0 o1; exact: here_proper.
case=> xV s_law sx pb pn o0 o1; rewrite one_by_one_child; apply: proper_bind => [|[out|]] //.
  apply: commit_proper => [|w /andP[w0 w1]]; first exact: (weight01 o0 s_law x).
  apply: ihb => // [y|]; first by rewrite mulr_ge0 ?(p_law _).1.
  by rewrite massE -mulr_sumr -massE (p_law _).2 mulr1.
apply: ihn pn _ _ => [y|]; first by apply: refused_ge0.
by apply: refused_le1.
Qed.

(** A whole round: draft, then verify. *)
Lemma grow_bind_proper A pl ctx before (k : draft T -> program R A) :
  truthful V declared pl ctx before ->
  (forall d, possible V declared d ctx before -> proper (k d)) ->
  proper (bind (grow V pl) k).
Proof.
elim: pl A ctx before k => [|s below ihb next ihn] A ctx before k; first by move=> _ pk; exact: pk.
case=> s_law h pk; apply: proper_draw => // x xV sx; have [ds hb hn] := h x xV sx.
apply: proper_bindA; apply: ihb hb _ => b pb; apply: proper_bindA; apply: ihn (hn b) _ => d pd.
apply: pk; split=> //; last by rewrite ds.
by split=> [y|]; [rewrite ds s_law.1 | rewrite (eq_mass (fun y _ => ds y)) s_law.2].
Qed.

Theorem round_proper_4 pl ctx :
  truthful V declared pl ctx [::] ->
  proper (bind (grow V pl) (verify V commit p declared ^~ ctx)).
Proof.
move=> t; apply: grow_bind_proper t _ => d pd; apply: one_by_one_proper_4 => // [y|].
  exact: (p_law ctx).1.
by rewrite (p_law ctx).2.
Qed.

End Proper.

Section Commitments.
Variables (R : realFieldType) (T : eqType).

Lemma deferred_properly : commits_properly (@deferred R T).
Proof. by move=> f weight w01 pf; exact: pf. Qed.

Lemma immediate_properly : commits_properly (@immediate R T).
Proof. by move=> f weight w01 pf; apply: proper_flip => // _; apply: pf; rewrite ler01 lexx. Qed.

End Commitments.
