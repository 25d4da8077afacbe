(** 5, 6. Deferred commitment: specref/rules/traversal.py, traversal_with.py and block.py.

    A node has a weight r and a target b; its first leaf is tested first, and a refusal moves r, b
    and the law s of the next sibling. Both are the lemma's verifier, whose [owed] is r b. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target Lemma Instance.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Deferred.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Local Notation row := (T -> R).
Local Notation verdict := (option text).
Variables p q : text -> row.

Definition times (r : R) (w : row) : row := fun y => r * w y.

(** Accept the node with chance r, always if it is the root, and draw the next token. *)
Definition leaf (root : bool) (r : R) (b : row) : program R verdict :=
  let token := Draw V b (fun y => Ret (Some [:: y])) in
  if root then token else flip r token (Ret None).

(** Behind the drafted x, what is emitted below it. Else what [others] do. *)
Definition else_try (x : T) (below others : program R verdict) : program R verdict :=
  bind below (fun found => if found is Some out then Ret (Some (x :: out)) else others).

Definition text_of (m : program R verdict) : program R text :=
  bind m (fun found => Ret (if found is Some out then out else [::])).

Section Following.
Variable following : row -> T -> row.

Fixpoint visit (d : draft T) (ctx : text) (r : R) (b s : row) (root : bool) : program R verdict :=
  match d with
  | Last => leaf root r b
  | Child x below next =>
      let ctx' := rcons ctx x in
      let wanted := left (times r b) s in
      let total := mass V wanted in
      let r' := if r < 1 then total / (total + (1 - r)) else r in
      let b' := if 0 < total then normalise V wanted else b in
      else_try x (visit below ctx' (Num.min 1 (r * b x / s x)) (p ctx') (q ctx') false)
                 (visit next ctx r' b' (following s x) root)
  end.

Definition visit_root (d : draft T) (ctx : text) : program R text :=
  text_of (visit d ctx 1 (p ctx) (q ctx) true).

End Following.

(** specref/rules/traversal.py *)
Definition traversal := visit_root (without V).

(** specref/rules/traversal_with.py *)
Definition traversal_with := visit_root again.

(** specref/rules/block.py: the weights of a chain, and coins from the deepest node up. *)
Fixpoint block_at (d : draft T) (ctx : text) (weight : R) (root : bool) : program R verdict :=
  match d with
  | Last => leaf root weight (p ctx)
  | Child x below _ =>
      let wanted := left (times weight (p ctx)) (q ctx) in
      let spare := mass V wanted in
      let chance := if weight == 1 then 1 else spare / (spare + (1 - weight)) in
      else_try x (block_at below (rcons ctx x) (Num.min 1 (weight * p ctx x / q ctx x)) false)
                 (leaf root chance (normalise V wanted))
  end.

Definition block (d : draft T) (ctx : text) : program R text := text_of (block_at d ctx 1 true).

Hypothesis p_law : forall ctx, is_law V (p ctx).

Lemma expect_leaf (root : bool) r (b : row) (F : verdict -> R) :
  (root -> r = 1) ->
  expect (leaf root r b) F = r * (\sum_(y <- V) b y * F (Some [:: y])) + (1 - r) * F None.
Proof.
rewrite /leaf; case: root => [->|_]; last by rewrite expect_flip expect_draw.
  by rewrite expect_draw mul1r subrr mul0r addr0.
by [].
Qed.

Lemma expect_here (owed : row) (F : verdict -> R) :
  (forall y, 0 <= owed y) ->
  expect (here V owed) F
  = \sum_(y <- V) owed y * F (Some [:: y]) + (1 - mass V owed) * F None.
Proof. by move=> o0; rewrite /here expect_flip expect_draw normalise_sum. Qed.

Lemma expect_else_try x (m n : program R verdict) F :
  expect (else_try x m n) F
  = expect m (fun found => if found is Some out then F (Some (x :: out)) else expect n F).
Proof. by rewrite /else_try expect_bind; apply: eq_expect => -[]. Qed.

(** One refusal: what [visit] goes on with is what the lemma goes on with. *)
Section Refusal.
Variables (r : R) (b s owed : row) (x : T).
Hypothesis r01 : 0 <= r <= 1.
Hypothesis b_law : is_law V b.
Hypothesis s_law : is_law V s.
Hypothesis owed0 : forall y, 0 <= owed y.
Hypothesis owedE : {in V, owed =1 times r b}.

Let wanted := left (times r b) s.
Let total := mass V wanted.

Lemma mass_owed : mass V owed = r.
Proof. by rewrite (eq_mass owedE) massE -mulr_sumr -massE b_law.2 mulr1. Qed.

Lemma left_owed : {in V, left owed s =1 wanted}.
Proof. by move=> y yV; rewrite /left owedE. Qed.

Lemma total_ge0 : 0 <= total.
Proof. exact: mass_ge0 (left_ge0 _ _). Qed.

Lemma chance_gt0 : (total != 0) || (r < 1) -> 0 < total + (1 - r).
Proof.
have /andP[_ r1] := r01; case/orP => h; last by rewrite ltr_paddl ?total_ge0 // subr_gt0.
by rewrite ltr_paddr ?subr_ge0 // lt_neqAle eq_sym h total_ge0.
Qed.

Lemma refused_owed : {in V, refused V owed (left owed s) =1 fun y => wanted y / (total + (1 - r))}.
Proof. by move=> y yV; rewrite /refused mass_owed (eq_mass left_owed) left_owed. Qed.

Lemma weight_after :
  let r' := if r < 1 then total / (total + (1 - r)) else r in
  [/\ 0 <= r' <= 1 & (r = 1 -> r' = 1)].
Proof.
move=> r'; have /andP[r0 r1] := r01; rewrite /r'; case: ltP => lt; last by rewrite r0 r1.
have D0 := chance_gt0 (introT orP (or_intror lt)).
split=> [|E]; last by move: lt; rewrite E ltxx.
by rewrite divr_ge0 ?total_ge0 ?(ltW D0) //= ler_pdivr_mulr // mul1r ler_addl subr_ge0.
Qed.

Lemma target_after : is_law V (if 0 < total then normalise V wanted else b).
Proof.
case: ltP => // t0; apply: normalise_law; first exact: left_ge0.
by rewrite gt_eqF.
Qed.

Lemma owed_after :
  (total != 0) || (r < 1) ->
  {in V, refused V owed (left owed s) =1
    times (if r < 1 then total / (total + (1 - r)) else r)
          (if 0 < total then normalise V wanted else b)}.
Proof.
move=> ok y yV; have D0 := chance_gt0 ok; rewrite refused_owed // /times.
have [t0|t0] := ltP 0 total; last first.
  have tE : total = 0 by apply/eqP; rewrite eq_le t0 total_ge0.
  move: ok; rewrite tE eqxx /= => ->.
  have -> : wanted y = 0 := mass0_on (left_ge0 _ _) tE yV.
  by rewrite !mul0r.
rewrite /normalise -/total; case: ltP => r1; first by rewrite [RHS]mulrC mulrA divfK ?gt_eqF.
have -> : r = 1 by apply/eqP; rewrite eq_le r1 (andP r01).2.
by rewrite subrr addr0 mul1r.
Qed.

(** If nothing is left and nothing may be refused, nothing is. *)
Lemma surely_accepted :
  ~~ ((total != 0) || (r < 1)) -> x \in V -> s x != 0 ->
  is_law V owed /\ Num.min 1 (owed x / s x) = 1.
Proof.
rewrite negb_or negbK => /andP[/eqP tE]; rewrite -leNgt => r1 xV sx.
have rE : r = 1 by apply/eqP; rewrite eq_le r1 (andP r01).2.
have owed_law : is_law V owed by split=> //; rewrite mass_owed.
split=> //; have S0 := etrans (eq_mass left_owed) tE.
exact: (nothing_left owed_law s_law xV sx S0).
Qed.

End Refusal.

Section Instance.
Variable following : row -> T -> row.
Local Notation declared := (drawn_by q following).

Theorem visit_instance_5 d ctx before r b owed (root : bool) F :
  possible V declared d ctx before -> 0 <= r <= 1 -> is_law V b -> (forall y, 0 <= owed y) ->
  {in V, owed =1 times r b} -> (root -> r = 1) ->
  expect (visit following d ctx r b (foldl following (q ctx) before) root) F
  = expect (one_by_one V (@deferred R T) p declared d ctx before owed) F.
Proof.
elim: d ctx before r b owed root F => [|x below ihb next ihn] ctx before r b owed root F.
  move=> _ r01 b_law o0 oE rootE; rewrite [visit _ _ _ _ _ _ _]/= one_by_one_last.
  rewrite expect_leaf // expect_here // (mass_owed b_law oE); congr (_ + _).
  by rewrite big_distrr; apply: eq_big_seq => y yV; rewrite oE //= mulrA.
case=> xV s_law sx pb pn r01 b_law o0 oE rootE; rewrite one_by_one_child expect_bind.
rewrite [visit _ _ _ _ _ _ _]/= expect_else_try.
set s := foldl following (q ctx) before; have sE : declared ctx before x = s by [].
rewrite sE in s_law sx *; rewrite -[r * b x](oE x xV) /deferred.
set f := fun found : verdict => _; set g := fun found : verdict => _.
have a01 : 0 <= Num.min 1 (owed x / s x) <= 1.
  by rewrite le_minr ler01 divr_ge0 ?(s_law.1) //= le_minl lexx.
have pl := p_law (rcons ctx x).
have deeper G : expect (visit following below (rcons ctx x) (Num.min 1 (owed x / s x))
                          (p (rcons ctx x)) (q (rcons ctx x)) false) G
    = expect (one_by_one V (@deferred R T) p declared below (rcons ctx x) [::]
                (fun y => Num.min 1 (owed x / s x) * p (rcons ctx x) y)) G.
  apply: (ihb (rcons ctx x) [::]) => // y; case/andP: a01 => a0 _.
  by rewrite mulr_ge0 // pl.1.
rewrite deeper; have agree_fg : agree f g by [].
have [ok|no] := boolP ((mass V (left (times r b) s) != 0) || (r < 1)).
  apply: eq_expect => -[out|]; first exact: agree_fg.
  have [r01' r1] := weight_after b s r01.
  rewrite /f /g -foldl_rcons; apply: ihn => //.
  - exact: target_after.
  - move=> y; apply: refused_ge0 => //; rewrite (mass_owed b_law oE); by case/andP: r01.
  - exact: owed_after.
  - by move=> /rootE/r1.
have [owed_law aE] := surely_accepted r01 b_law s_law o0 oE no xV sx.
apply: (sure p_law (@deferred_surely R T) pb) => //; rewrite aE.
by split=> [y|]; rewrite ?mul1r ?pl.1 // massE -mulr_sumr -massE pl.2 mulr1.
Qed.

Theorem visit_lossless_5 pl ctx :
  truthful V declared pl ctx [::] ->
  lossless V p ctx (bind (grow V pl) (visit_root following ^~ ctx)).
Proof.
move=> tr v fv; rewrite expect_bind.
rewrite -(verify_4 (@deferred_commits_5 R T) p_law (v ctx) tr fv).
apply: (eq_expect_truthful tr) => d pd; rewrite /visit_root /text_of expect_bind.
have := @visit_instance_5 d ctx [::] 1 (p ctx) (p ctx) true.
move=> /= -> //=; first by apply: eq_expect => -[|] //=; rewrite cats0.
- by rewrite ler01 lexx.
- exact: (p_law _).1.
- by move=> y _; rewrite /times mul1r.
Qed.

End Instance.

Theorem block_instance_6 d ctx r owed (root : bool) F :
  possible V (drawn_by q again) d ctx [::] -> is_chain d -> 0 <= r <= 1 ->
  (forall y, 0 <= owed y) -> {in V, owed =1 times r (p ctx)} -> (root -> r = 1) ->
  expect (block_at d ctx r root) F
  = expect (one_by_one V (@deferred R T) p (drawn_by q again) d ctx [::] owed) F.
Proof.
elim: d ctx r owed root F => [|x below ih [|//] _] ctx r owed root F.
  move=> _ _ r01 o0 oE rootE; rewrite [block_at _ _ _ _]/= one_by_one_last.
  rewrite expect_leaf // expect_here // (mass_owed (p_law ctx) oE); congr (_ + _).
  by rewrite big_distrr; apply: eq_big_seq => y yV; rewrite oE //= mulrA.
case=> xV s_law sx pb _ cb r01 o0 oE rootE; rewrite one_by_one_child expect_bind.
rewrite [block_at _ _ _ _]/= expect_else_try.
have sE : drawn_by q again ctx [::] x = q ctx by [].
rewrite sE in s_law sx *; set s := q ctx in s_law sx *.
rewrite -[r * p ctx x](oE x xV).
have a01 : 0 <= Num.min 1 (owed x / s x) <= 1.
  by rewrite le_minr ler01 divr_ge0 ?(s_law.1) //= le_minl lexx.
rewrite (ih _ _ (fun y => Num.min 1 (owed x / s x) * p (rcons ctx x) y)) // /deferred; last first.
  by move=> y; case/andP: a01 => a0 _; rewrite mulr_ge0 ?(p_law _).1.
 set f := fun found : verdict => _; set g := fun found : verdict => _.
have agree_fg : agree f g by [].
have [ok|no] := boolP ((mass V (left (times r (p ctx)) s) != 0) || (r < 1)).
  apply: eq_expect => -[out|]; first exact: agree_fg.
  rewrite /f /g one_by_one_last.
  have D0 := chance_gt0 r01 ok.
  have chanceE : (if r == 1 then 1 else mass V (left (times r (p ctx)) s)
                                       / (mass V (left (times r (p ctx)) s) + (1 - r)))
      = mass V (left (times r (p ctx)) s) / (mass V (left (times r (p ctx)) s) + (1 - r)).
    case: eqP => // rE; rewrite rE subrr addr0 divff // gt_eqF //.
    by move: D0; rewrite rE subrr addr0.
  rewrite chanceE expect_leaf; last by move=> /rootE rE; rewrite -chanceE rE eqxx.
  rewrite expect_here; last first.
    by move=> y; apply: refused_ge0 => //; rewrite (mass_owed (p_law ctx) oE); case/andP: r01.
  have -> : mass V (refused V owed (left owed s))
      = mass V (left (times r (p ctx)) s) / (mass V (left (times r (p ctx)) s) + (1 - r)).
    by rewrite (eq_mass (refused_owed s (p_law ctx) oE)) [LHS]massE -mulr_suml -massE.
  congr (_ + _).
  rewrite mulrAC normalise_sum; last exact: left_ge0.
  rewrite mulr_suml; apply: eq_big_seq => y yV.
  by rewrite (refused_owed s (p_law ctx) oE) // mulrAC.
have [owed_law aE] := surely_accepted r01 (p_law ctx) s_law o0 oE no xV sx.
apply: (sure p_law (@deferred_surely R T) pb) => //; rewrite aE.
by split=> [y|]; rewrite /times ?mul1r ?(p_law _).1 // massE -mulr_sumr -massE (p_law _).2 mulr1.
Qed.

Theorem traversal_lossless_6 pl ctx :
  truthful V (drawn_by q (without V)) pl ctx [::] ->
  lossless V p ctx (bind (grow V pl) (traversal^~ ctx)).
Proof. exact: visit_lossless_5. Qed.

Theorem traversal_with_lossless_6 pl ctx :
  truthful V (drawn_by q again) pl ctx [::] ->
  lossless V p ctx (bind (grow V pl) (traversal_with^~ ctx)).
Proof. exact: visit_lossless_5. Qed.

Theorem block_lossless_6 pl ctx :
  chains pl -> truthful V (drawn_by q again) pl ctx [::] ->
  lossless V p ctx (bind (grow V pl) (block^~ ctx)).
Proof.
move=> cpl tr v fv; rewrite expect_bind.
rewrite -(verify_4 (@deferred_commits_5 R T) p_law (v ctx) tr fv).
pose keep (d : draft T) f :=
  expect (if is_chain d then f d : program R verdict else Ret None) (worth v (v ctx) ctx).
transitivity (expect (grow V pl) (fun d => keep d (fun d => block_at d ctx 1 true))).
  apply: eq_expect_chains => // d _ cd; rewrite /keep cd /block /text_of expect_bind.
  by apply: eq_expect => -[|] //=; rewrite cats0.
transitivity (expect (grow V pl) (fun d =>
    keep d (fun d => verify V (@deferred R T) p (drawn_by q again) d ctx))).
  apply: (eq_expect_truthful tr) => d pd; rewrite /keep; case: ifP => // cd.
  apply: block_instance_6; rewrite ?ler01 ?lexx //; first exact: (p_law ctx).1.
  by move=> y _; rewrite /times mul1r.
by apply: eq_expect_chains => // d _ cd; rewrite /keep cd.
Qed.

End Deferred.
