(** The rationals of Coq's standard library, in lowest terms, as a field of MathComp.

    MathComp's own [rat] does not compute in reasonable time; these do. So every theorem about an
    ordered field holds of the very programs that are evaluated with [vm_compute]. *)

From Coq Require Import QArith Qcanon Qcabs.
From mathcomp Require Import all_ssreflect ssralg ssrnum ssrZ.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.

Definition Qc_eqb (x y : Qc) : bool := Qeq_bool x y.

Lemma Qc_eqP : Equality.axiom Qc_eqb.
Proof.
move=> x y; apply: (iffP idP) => [/Qeq_bool_iff/Qc_is_canon //|->].
by apply/Qeq_bool_iff.
Qed.

Canonical Qc_eqType := Eval hnf in EqType Qc (EqMixin Qc_eqP).

Definition Qc_code (x : Qc) : Z * Z := (Qnum x, Zpos (Qden x)).

Definition Qc_decode (c : Z * Z) : Qc := Q2Qc (Qmake c.1 (Z.to_pos c.2)).

Lemma Qc_codeK : cancel Qc_code Qc_decode.
Proof. by case=> -[n d] /= c; apply: Qc_is_canon; rewrite /= c. Qed.

Canonical Qc_choiceType := Eval hnf in ChoiceType Qc (CanChoiceMixin Qc_codeK).

Definition Qc_zmodMixin :=
  @ZmodMixin Qc (Q2Qc 0) Qcopp Qcplus Qcplus_assoc Qcplus_comm Qcplus_0_l
    (fun x => etrans (Qcplus_comm _ _) (Qcplus_opp_r x)).
Canonical Qc_zmodType := Eval hnf in ZmodType Qc Qc_zmodMixin.

Lemma Qc_1_neq_0 : Q2Qc 1 != Q2Qc 0.
Proof. by []. Qed.

Definition Qc_ringMixin :=
  ComRingMixin Qcmult_assoc Qcmult_comm Qcmult_1_l Qcmult_plus_distr_l Qc_1_neq_0.
Canonical Qc_ringType := Eval hnf in RingType Qc Qc_ringMixin.
Canonical Qc_comRingType := Eval hnf in ComRingType Qc Qcmult_comm.

Lemma Qc_mulVf (x : Qc) : x != 0%R -> Qcmult (Qcinv x) x = 1%R.
Proof. by move=> /eqP x0; apply: Qcmult_inv_l. Qed.

Lemma Qc_inv0 : Qcinv 0%R = 0%R.
Proof. by apply/eqP. Qed.

Definition Qc_fieldUnitMixin := FieldUnitMixin Qc_mulVf Qc_inv0.
Canonical Qc_unitRingType := Eval hnf in UnitRingType Qc Qc_fieldUnitMixin.
Canonical Qc_comUnitRingType := Eval hnf in [comUnitRingType of Qc].

Lemma Qc_field : GRing.Field.mixin_of Qc_unitRingType.
Proof. by []. Qed.

Definition Qc_idomainMixin := FieldIdomainMixin Qc_field.
Canonical Qc_idomainType := Eval hnf in IdomainType Qc Qc_idomainMixin.
Canonical Qc_fieldType := Eval hnf in FieldType Qc Qc_field.

Definition Qc_leb (x y : Qc) : bool := Qle_bool x y.
Definition Qc_ltb (x y : Qc) : bool := ~~ Qc_leb y x.

Lemma Qc_leP x y : reflect (Qcle x y) (Qc_leb x y).
Proof. by apply: (iffP idP) => /Qle_bool_iff. Qed.

Local Open Scope ring_scope.

Lemma Qc_le0D (x y : Qc) : Qc_leb 0 x -> Qc_leb 0 y -> Qc_leb 0 (x + y).
Proof.
move=> /Qc_leP x0 /Qc_leP y0; apply/Qc_leP.
by have := Qcplus_le_compat _ _ _ _ x0 y0; rewrite Qcplus_0_l.
Qed.

Lemma Qc_le0M (x y : Qc) : Qc_leb 0 x -> Qc_leb 0 y -> Qc_leb 0 (x * y).
Proof.
move=> /Qc_leP x0 /Qc_leP y0; apply/Qc_leP.
by have := Qcmult_le_compat_r _ _ _ x0 y0; rewrite Qcmult_0_l.
Qed.

Lemma Qc_le0_anti (x : Qc) : Qc_leb 0 x -> Qc_leb x 0 -> x = 0.
Proof. by move=> /Qc_leP x0 /Qc_leP /Qcle_antisym; apply. Qed.

Lemma Qc_sub_ge0 (x y : Qc) : Qc_leb 0 (y - x) = Qc_leb x y.
Proof.
by apply/idP/idP => /Qc_leP h; apply/Qc_leP; [rewrite Qcle_minus_iff | rewrite -Qcle_minus_iff].
Qed.

Lemma Qc_le0_total (x : Qc) : Qc_leb 0 x || Qc_leb x 0.
Proof.
case: (Qclt_le_dec 0 x) => [/Qclt_le_weak|] /Qc_leP-> //; exact: orbT.
Qed.

Lemma Qc_normN (x : Qc) : Qcabs (- x) = Qcabs x.
Proof. exact: Qcabs_opp. Qed.

Lemma Qc_norm_ge0 (x : Qc) : Qc_leb 0 x -> Qcabs x = x.
Proof. by move=> /Qc_leP; apply: Qcabs_pos. Qed.

Lemma Qc_lt_def (x y : Qc) : Qc_ltb x y = (y != x) && Qc_leb x y.
Proof.
rewrite /Qc_ltb; case: (Qc_leP x y) => xy; last first.
  rewrite andbF; apply/negbTE; rewrite negbK; apply/Qc_leP.
  by case: (Qclt_le_dec y x) => [/Qclt_le_weak|/xy].
rewrite andbT; congr (~~ _); apply/Qc_leP/eqP => [yx|->]; last exact: Qcle_refl.
exact: Qcle_antisym.
Qed.

Definition Qc_leMixin :=
  RealLeMixin Qc_le0D Qc_le0M Qc_le0_anti Qc_sub_ge0 Qc_le0_total Qc_normN Qc_norm_ge0 Qc_lt_def.

Canonical Qc_porderType := POrderType ring_display Qc Qc_leMixin.
Canonical Qc_latticeType := LatticeType Qc Qc_leMixin.
Canonical Qc_distrLatticeType := DistrLatticeType Qc Qc_leMixin.
Canonical Qc_orderType := OrderType Qc Qc_leMixin.
Canonical Qc_numDomainType := NumDomainType Qc Qc_leMixin.
Canonical Qc_normedZmodType := NormedZmodType Qc Qc Qc_leMixin.
Canonical Qc_numFieldType := [numFieldType of Qc].
Canonical Qc_realDomainType := [realDomainType of Qc].
Canonical Qc_realFieldType := [realFieldType of Qc].

(** n / d *)
Definition frac (n : Z) (d : positive) : Qc := Q2Qc (Qmake n d).
