(** 7. What is not lossless, with the exact total variation of the first token.

    Each breaks one condition of the lemma: the declared law of a draft is its true law, and whether
    a draft is there does not depend on its token. Over the rationals; p = (1/2, 3/10, 1/5),
    q = (1/5, 1/5, 3/5), and for truncation p = (7/10, 3/10), q = (1/2, 1/2). *)

From Coq Require Import ZArith QArith Qcanon.
From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target Rrs Token Rational.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Definition row (w : seq Qc) : nat -> Qc := nth 0 w.

Definition V2 := [:: 0; 1]%N.
Definition V3 := [:: 0; 1; 2]%N.

Definition p3 (ctx : seq nat) := row [:: frac 1 2; frac 3 10; frac 1 5].
Definition q3 (ctx : seq nat) := row [:: frac 1 5; frac 1 5; frac 3 5].
Definition p2 (ctx : seq nat) := row [:: frac 7 10; frac 3 10].
Definition q2 (ctx : seq nat) := row [:: frac 1 2; frac 1 2].

(** The law of the first token: of a round, continued by the target. *)
Definition first V p (round : program Qc_realFieldType (seq nat)) : nat -> Qc :=
  fun x => law (bind round (complete V p 1 [::])) [:: x].

Lemma p2_law ctx : is_law V2 (p2 ctx).
Proof. by split=> [[|[|[|x]]]|]; apply/eqP. Qed.

Lemma p3_law ctx : is_law V3 (p3 ctx).
Proof. by split=> [[|[|[|[|x]]]]|]; apply/eqP. Qed.

(** A total variation other than 0 refutes losslessness. *)
Lemma lossy V p round :
  (forall ctx, is_law V (p ctx)) -> uniq V -> tv V (first V p round) (p [::]) != 0 ->
  ~ lossless V p [::] round.
Proof.
move=> p_law uV /eqP tv0 fairly; apply: tv0; rewrite /tv massE big_seq big1 ?mul0r // => x xV.
rewrite /first (lossless_law_3 p_law 1 fairly) /law expect_draw (bigD1_seq x) //= eqxx mulr1.
by rewrite big1 ?addr0 ?subrr ?normr0 // => y /negbTE yx; rewrite eqseq_cons yx mulr0.
Qed.

(** The likeliest token of q is drafted, and tested as if it had been drawn from q. *)
Definition argmax_soft_q :=
  bind (grow V3 (given Qc_realFieldType (chain [:: 2%N]))) (token V3 p3 q3 ^~ [::]).

Theorem argmax_soft_q_7 : tv V3 (first V3 p3 argmax_soft_q) (p3 [::]) = frac 2 15.
Proof. by apply/eqP; vm_compute. Qed.

(** The two likeliest are drafted, and tested as if drawn without replacement. *)
Definition top2_soft_q :=
  bind (grow V3 (given Qc_realFieldType (Child 2%N Last (Child 0%N Last Last))))
       (rrs_without V3 p3 q3 ^~ [::]).

Theorem top2_soft_q_7 : tv V3 (first V3 p3 top2_soft_q) (p3 [::]) = frac 3 10.
Proof. by apply/eqP; vm_compute. Qed.

(** Two siblings are drawn independently, and tested once where they are equal. *)
Definition merge (d : draft nat_eqType) : draft nat_eqType :=
  if d is Child x below (Child y _ Last) then if x == y then Child x below Last else d else d.

Definition merged_siblings :=
  bind (grow V3 (with_replacement q3 [:: 2%N] [::])) (fun d => rrs_with V3 p3 q3 (merge d) [::]).

Theorem merged_siblings_7 : tv V3 (first V3 p3 merged_siblings) (p3 [::]) = frac 1 25.
Proof. by apply/eqP; vm_compute. Qed.

(** A drafted token is submitted only if it is 0. *)
Definition truncate (d : draft nat_eqType) : draft nat_eqType :=
  if d is Child 0%N _ _ then d else Last.

Definition truncated :=
  bind (grow V2 (with_replacement q2 [:: 1%N] [::])) (fun d => token V2 p2 q2 (truncate d) [::]).

Theorem truncated_7 : tv V2 (first V2 p2 truncated) (p2 [::]) = frac 3 20.
Proof. by apply/eqP; vm_compute. Qed.

(** Two siblings are drawn without replacement, and tested as if drawn with. *)
Definition without_as_with :=
  bind (grow V3 (without_replacement V3 q3 [:: 2%N] [::])) (rrs_with V3 p3 q3 ^~ [::]).

Theorem without_as_with_7 : tv V3 (first V3 p3 without_as_with) (p3 [::]) = frac 1 10.
Proof. by apply/eqP; vm_compute. Qed.

Corollary none_lossless_7 :
  [/\ ~ lossless V3 p3 [::] argmax_soft_q, ~ lossless V3 p3 [::] top2_soft_q,
      ~ lossless V3 p3 [::] merged_siblings, ~ lossless V2 p2 [::] truncated
    & ~ lossless V3 p3 [::] without_as_with].
Proof.
by split; apply: lossy => //; rewrite ?argmax_soft_q_7 ?top2_soft_q_7 ?merged_siblings_7
  ?truncated_7 ?without_as_with_7 // => ctx; (exact: p3_law || exact: p2_law).
Qed.
