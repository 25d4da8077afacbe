(** 6. The rules that look at no draft law are one rule, and an instance of the lemma.

    Given a draft, every draft is certain: the law that is declared of a child is the point mass at
    its token. Draft by draft, sample-and-match, target-only and the lemma's verifier for certain
    drafts emit the same law, whatever the siblings are. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target Lemma Match TargetOnly.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Certain.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Variable p : text -> T -> R.
Hypothesis uV : uniq V.
Hypothesis p_law : forall ctx, is_law V (p ctx).

Local Notation draw := (fun ctx (k : T -> program R text) => Draw V (p ctx) k).
Local Notation walk_ := (walk draw).

Lemma walk_apart d ctx y : y \notin heads d -> walk_ d ctx y = Ret [:: y].
Proof.
elim: d => [//|x below _ next ih] /=; rewrite inE negb_or => /andP[/negbTE-> yn].
exact: ih.
Qed.

Theorem target_only_is_match_6 d ctx f :
  all_in V d -> expect (target_only V p d ctx) f = expect (match_ V p d ctx) f.
Proof.
have same c follow_ b g : all_in V b ->
    (forall y, y \in heads b -> expect (follow_ y) g = expect (walk_ b c y) g) ->
    expect (fall V (p c) (heads b) follow_) g = \sum_(y <- V) p c y * expect (walk_ b c y) g.
  move=> ab fw; apply: (fall_draws uV (g := fun y => expect (walk_ b c y) g)) => //.
  - exact: (p_law c).1.
  - exact: all_in_heads.
  - by move=> y yb; rewrite walk_apart.
have follow_walk b c y g : all_in V b -> y \in heads b ->
    expect (follow V p b c y) g = expect (walk_ b c y) g.
  elim: b c y g => [//|x below ihb next ihn] c y g /and3P[xV ab an].
  rewrite [follow _ _ _ _ _]/= [walk _ _ _ _]/= inE; case: eqP => [_ _|_ /= yn]; last exact: ihn.
  rewrite !expect_emit expect_draw; apply: same => // z zb; exact: ihb.
by move=> ad; rewrite /target_only same // => [|y yd]; [rewrite -expect_draw | exact: follow_walk].
Qed.

(** What is owed after the refusals of [before], up to its mass. *)
Lemma others_rcons (w : T -> R) before x y :
  others w (rcons before x) y = if y == x then 0 else others w before y.
Proof. by rewrite /others mem_rcons inE; case: eqP. Qed.

Lemma others_split (w : T -> R) before x g : x \in V ->
  \sum_(y <- V) others w before y * g y
  = others w before x * g x + \sum_(y <- V) others w (rcons before x) y * g y.
Proof.
move=> xV; rewrite (bigD1_seq x) //=; congr (_ + _).
rewrite [RHS](bigD1_seq x) //= others_rcons eqxx mul0r add0r.
by apply: eq_bigr => y /negbTE yx; rewrite others_rcons yx.
Qed.

Theorem certain_at_6 d ctx before owed f z :
  let c := mass V (others (p ctx) before) in
  all_in V d -> c != 0 -> (forall y, 0 <= owed y) ->
  {in V, forall y, owed y = others (p ctx) before y / c} ->
  c * expect (one_by_one V (@immediate R T) p (@certain R T) d ctx before owed) (worth f z [::])
  = \sum_(y <- V) others (p ctx) before y * expect (walk_ d ctx y) f.
Proof.
elim: d ctx before owed f z => [|x below ihb next ihn] ctx before owed f z c.
  move=> _ c0 o0 oE; rewrite one_by_one_last expect_here //.
  have -> : mass V owed = 1 by rewrite (eq_mass oE) massE -mulr_suml -massE divff.
  rewrite subrr mul0r add0r big_distrr big_seq [RHS]big_seq; apply: eq_bigr => y yV.
  by rewrite /= oE // mulrA mulrCA divff // mulr1.
case/and3P=> xV ab an c0 o0 oE; rewrite one_by_one_child expect_bind /immediate expect_flip.
have sumE : mass V owed = 1 by rewrite (eq_mass oE) massE -mulr_suml -massE divff.
have o1 : owed x <= 1.
  by rewrite -sumE massE (bigD1_seq x) //= ler_addl sumr_ge0.
have -> : Num.min 1 (owed x / certain R ctx before x x) = owed x.
  by rewrite /certain /point eqxx divr1; apply/min_idPr.
set after := refused V owed _; rewrite expect_ret.
pose c' := mass V (others (p ctx) (rcons before x)).
have c'E : c' = c - others (p ctx) before x.
  have sum1 (w : T -> R) : \sum_(y <- V) w y * 1 = mass V w.
    by rewrite massE; apply: eq_bigr => y _; rewrite mulr1.
  have := others_split (p ctx) before (fun _ => 1) xV.
  by rewrite !sum1 mulr1 /c => ->; rewrite addrAC subrr add0r.
pose En := expect (one_by_one V (@immediate R T) p (@certain R T) next ctx (rcons before x) after)
                  (worth f z [::]).
have belowE : expect (one_by_one V (@immediate R T) p (@certain R T) below (rcons ctx x) [::]
      (fun y => 1 * p (rcons ctx x) y)) (worth (fun out => f (x :: out)) En [::])
    = expect (walk_ (Child x below next) ctx x) f.
  have all1 : mass V (others (p (rcons ctx x)) [::]) = 1 := (p_law _).2.
  rewrite -[LHS]mul1r -[in LHS]all1 (ihb (rcons ctx x) [::]) ?all1 ?oner_eq0 //; last 2 first.
  - by move=> y; rewrite mul1r (p_law _).1.
  - by move=> y yV; rewrite mul1r divr1.
  by rewrite [walk _ (Child _ _ _) _ _]/= eqxx expect_emit expect_draw.
have -> : expect (one_by_one V (@immediate R T) p (@certain R T) below (rcons ctx x) [::]
      (fun y => 1 * p (rcons ctx x) y))
    (fun found => expect (if found is Some out then Ret (Some (x :: out))
                          else one_by_one V (@immediate R T) p (@certain R T) next ctx
                                 (rcons before x) after) (worth f z [::]))
    = expect (walk_ (Child x below next) ctx x) f.
  by rewrite -belowE; apply: eq_expect => -[].
rewrite -/En mulrDr mulrA [c * owed x]mulrC oE // divfK // (others_split _ _ _ xV); congr (_ + _).
have -> : \sum_(y <- V) others (p ctx) (rcons before x) y
      * expect (walk_ (Child x below next) ctx y) f
    = \sum_(y <- V) others (p ctx) (rcons before x) y * expect (walk_ next ctx y) f.
  apply: eq_bigr => y _; rewrite others_rcons [walk _ (Child _ _ _) _ _]/=.
  by case: eqP => // _; rewrite !mul0r.
have cE : c * (1 - others (p ctx) before x / c) = c'.
  by rewrite mulrBr mulr1 mulrCA divff // mulr1 c'E.
rewrite mulrA cE; have [c'0|c'0] := eqVneq c' 0.
  by rewrite c'0 mul0r mass0_sum // => y; apply: others_ge0; exact: (p_law ctx).1.
apply: ihn => // [y|y yV].
  by apply: refused_ge0; rewrite sumE.
have leftE : {in V, left owed (certain R ctx before x) =1
    fun y => others (p ctx) (rcons before x) y / c}.
  move=> w wV; rewrite /left /certain /point others_rcons; case: eqP => [->|_].
    by rewrite mul0r (max_idPr _) // subr_le0.
  by rewrite subr0 (max_idPl (o0 w)) oE.
rewrite /after /refused sumE subrr addr0 leftE // (eq_mass leftE) massE -mulr_suml -massE -/c'.
by rewrite invf_div mulrA divfK.
Qed.

Theorem certain_instance_6 d ctx f z :
  all_in V d ->
  expect (match_ V p d ctx) f
  = expect (verify V (@immediate R T) p (@certain R T) d ctx) (worth f z [::]).
Proof.
move=> ad; rewrite /match_ expect_draw.
have all1 : mass V (others (p ctx) [::]) = 1 := (p_law _).2.
rewrite -[RHS]mul1r -[in RHS]all1 (certain_at_6 (owed := p ctx)) ?all1 ?oner_eq0 //.
- exact: (p_law ctx).1.
- by move=> y yV; rewrite divr1.
Qed.

End Certain.
