(** 10. The residuals of recursive rejection are one family: norm((p - c q)+).

    With M = sum (p - c q)+ and Q the draft mass of the tokens not yet drafted (1 when siblings are
    drawn with replacement), a refusal moves c to c + M / Q. So a program needs no rows but p and q,
    and the scalars c, M and Q; [test_10] is the test of the next sibling in these terms. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Residuals.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation row := (T -> R).
Variables p q : row.
Hypothesis p_law : is_law V p.
Hypothesis q_law : is_law V q.

(** (p - c q)+ and its mass M. *)
Definition owes (c : R) : row := left p (fun x => c * q x).

Definition M (c : R) : R := mass V (owes c).

(** q without the drafted tokens, not normalised, and its mass Q. *)
Definition undrafted (drafted : seq T) : row := fun x => if x \in drafted then 0 else q x.

Definition Q (drafted : seq T) : R := mass V (undrafted drafted).

Lemma maxrBK (a b c : R) : 0 <= c -> Num.max (Num.max (a - b) 0 - c) 0 = Num.max (a - (b + c)) 0.
Proof.
move=> c0; rewrite opprD addrA; have [_|lt] := leP 0 (a - b); first by [].
have l : a - b - c <= 0 by rewrite subr_le0 (le_trans (ltW lt)).
by rewrite (max_idPr l) sub0r (max_idPr _) // oppr_le0.
Qed.

Lemma maxr_scale (a k : R) : 0 < k -> Num.max (a / k) 0 = Num.max a 0 / k.
Proof.
move=> k0; have [a0|a0] := leP 0 a; first by rewrite (max_idPl _) // divr_ge0 // ltW.
by rewrite mul0r (max_idPr _) // ltW // pmulr_llt0 // invr_gt0.
Qed.

(** At first nothing has been refused: c = 0, M = 1, Q = 1. *)
Theorem start_10 : [/\ owes 0 =1 p, M 0 = 1 & Q [::] = 1].
Proof.
have o0 : owes 0 =1 p by move=> x; rewrite /owes /left mul0r subr0 (max_idPl (p_law.1 x)).
by split=> //; [rewrite /M (eq_mass (fun x _ => o0 x)) p_law.2 | exact: q_law.2].
Qed.

(** One refusal, as [rrs_at] computes it: a' = excess a s. With s the law of the sibling. *)
Section Refusal.
Variables (c : R) (drafted : seq T) (a s : row).
Hypothesis M0 : 0 < M c.
Hypothesis Q0 : 0 < Q drafted.
Hypothesis aE : a =1 fun x => owes c x / M c.
Hypothesis sE : s =1 fun x => undrafted drafted x / Q drafted.
(** What was drafted has been refused, so it is owed nothing more. *)
Hypothesis refused : forall x, x \in drafted -> owes c x = 0.
Hypothesis c0 : 0 <= c.

Let c' := c + M c / Q drafted.

Lemma c'_ge : c <= c'.
Proof. by rewrite ler_addl divr_ge0 // ltW. Qed.

Lemma owes_anti k l x : k <= l -> owes k x = 0 -> owes l x = 0.
Proof.
move=> kl; rewrite /owes /left => k0; apply/max_idPr.
have: p x - k * q x <= 0 by rewrite -k0 le_maxr lexx.
by apply: le_trans; rewrite ler_add2l ler_opp2 ler_wpmul2r // q_law.1.
Qed.

Theorem left_10 x : left a s x = owes c' x / M c.
Proof.
rewrite /left aE sE /undrafted; case: ifP => [xd|_].
  by rewrite mul0r subr0 refused // (owes_anti c'_ge (refused xd)) !mul0r maxxx.
have -> : q x / Q drafted = M c / Q drafted * q x / M c.
  by rewrite mulrAC (mulrAC (M c)) divff ?gt_eqF // mul1r mulrC.
rewrite -mulrBl maxr_scale // maxrBK; first by rewrite -mulrDl.
by rewrite mulr_ge0 ?q_law.1 // divr_ge0 // ltW.
Qed.

(** The residual is the next member of the family ... *)
Theorem residual_10 : 0 < M c' -> excess V a s =1 fun x => owes c' x / M c'.
Proof.
move=> M'0 x; rewrite /excess /normalise left_10 massE.
under eq_bigr do rewrite left_10.
by rewrite -mulr_suml -massE -/(M c') invf_div mulrA divfK ?gt_eqF.
Qed.

(** ... and empty exactly when M is 0. *)
Theorem empty_10 : (mass V (left a s) == 0) = (M c' == 0).
Proof.
rewrite massE; under eq_bigr do rewrite left_10.
by rewrite -mulr_suml -massE mulf_eq0 invr_eq0 (gt_eqF M0) orbF.
Qed.

(** The token that is refused is owed nothing from then on. *)
Theorem refused_10 x : x \notin drafted -> a x <= s x -> owes c' x = 0.
Proof.
move=> _ le; have: left a s x = 0 by apply/max_idPr; rewrite subr_le0.
by rewrite left_10 => /eqP; rewrite mulf_eq0 invr_eq0 (gt_eqF M0) orbF => /eqP.
Qed.

(** A sibling x, not yet drafted, is accepted iff u (M / Q) q(x) < (p - c q)(x). *)
Theorem test_10 u x :
  x \notin drafted -> 0 < q x -> 0 <= u < 1 ->
  (u < Num.min 1 (a x / s x)) = (u * (M c / Q drafted) * q x < p x - c * q x).
Proof.
move=> xd qx /andP[u0 u1]; rewrite lt_minr u1 aE sE /undrafted (negbTE xd) /=.
have sx : 0 < q x / Q drafted by rewrite divr_gt0.
rewrite ltr_pdivl_mulr // ltr_pdivl_mulr //.
have -> : u * (q x / Q drafted) * M c = u * (M c / Q drafted) * q x.
  by rewrite -!mulrA; congr (_ * _); rewrite mulrCA [RHS]mulrCA [q x * _]mulrC.
rewrite /owes /left lt_maxr orb_idr // ltNge.
by rewrite (mulr_ge0 (mulr_ge0 u0 (divr_ge0 (ltW M0) (ltW Q0))) (ltW qx)).
Qed.

End Refusal.

End Residuals.
