(** 8. Whole sequences, rule by rule: every round emits at least one token, so [whole_sequences_8]
    holds of the decoding loop around it, for any stopping set and any limit. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target Lemma Instance Rrs Token Match TargetOnly.
From specref Require Import Traversal Rounds.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Sequences.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Local Notation some_tokens := (emits (fun out : text => 0 < size out)%N).

Lemma emits_bind A B ok ok' (m : program R A) (k : A -> program R B) :
  emits ok m -> (forall a, ok a -> emits ok' (k a)) -> emits ok' (bind m k).
Proof.
move=> + mk; elim: m => [a|C s w next ih] /=; first exact: mk.
by move=> h c; apply: ih.
Qed.

Lemma emits_any A (m : program R A) : emits xpredT m.
Proof. by elim: m. Qed.

Lemma emits_emit x (m : program R text) : some_tokens (emit x m).
Proof. by apply: (emits_bind (emits_any m)). Qed.

Lemma emits_one_token w : some_tokens (one_token (R := R) V w).
Proof. by []. Qed.

Lemma emits_flip A ok c (yes no : program R A) :
  emits ok yes -> emits ok no -> emits ok (flip c yes no).
Proof. by move=> y n []. Qed.

Lemma emits_grow pl (rule : draft T -> program R text) :
  (forall d, some_tokens (rule d)) -> some_tokens (bind (grow V pl) rule).
Proof. by move=> h; apply: (emits_bind (emits_any _)) => d _; exact: h. Qed.

Variables p q : text -> T -> R.

Lemma emits_token d ctx : some_tokens (token V p q d ctx).
Proof. by case: d => [//|x below next]; apply: emits_flip; [apply: emits_emit|]. Qed.

Lemma emits_rrs following d ctx : some_tokens (rrs V p q following d ctx).
Proof.
rewrite /rrs; elim: d (p ctx) (q ctx) => [//|x below _ next ih] a s.
by apply: emits_flip; [apply: emits_emit | apply: ih].
Qed.

Lemma emits_walk next d ctx y :
  (forall c k, (forall z, some_tokens (k z)) -> some_tokens (next c k)) ->
  some_tokens (walk (R := R) next d ctx y).
Proof.
move=> h; elim: d => [//|x below _ others ih] /=; case: ifP => _ //; exact: emits_emit.
Qed.

Lemma emits_match d ctx : some_tokens (match_ V p d ctx).
Proof. by move=> y; apply: emits_walk => c k h z; exact: h. Qed.

Lemma emits_target_only d ctx : some_tokens (target_only V p d ctx).
Proof.
move=> [y|] //; elim: d => [//|x below _ next ih] /=.
by case: ifP => _ //; apply: emits_emit.
Qed.

Lemma emits_one_hot d ctx : some_tokens (one_hot V p d ctx).
Proof. by case: d => [//|x below next]; apply: emits_flip; [apply: emits_emit|]. Qed.

(** At the root a verdict is a text. *)
Local Notation accepts :=
  (emits (fun o : option text => if o is Some out then 0 < size out else false)%N).

Lemma emits_else_try x (m n : program R (option text)) : accepts n -> accepts (else_try x m n).
Proof. by move=> h; apply: (emits_bind (emits_any m)) => -[]. Qed.

Lemma emits_text_of m : accepts m -> some_tokens (text_of (R := R) m).
Proof. by move=> h; apply: (emits_bind h) => -[]. Qed.

Lemma emits_visit following d ctx : some_tokens (visit_root V p q following d ctx).
Proof.
apply: emits_text_of; elim: d 1 (p ctx) (q ctx) => [//|x below _ next ih] r b s.
by apply: emits_else_try; apply: ih.
Qed.

Lemma emits_block d ctx : some_tokens (block V p q d ctx).
Proof. by apply: emits_text_of; case: d => [//|x below next]; apply: emits_else_try. Qed.

Variable stop : text -> bool.
Variable limit : nat.
Hypothesis uV : uniq V.
Hypothesis p_law : forall ctx, is_law V (p ctx).

(** A loop is lossless if whole sequences have the law of plain decoding. *)
Definition whole (rule : draft T -> text -> program R text) (drafter : text -> plan R T) : Prop :=
  law (decode stop limit (fun out => bind (grow V (drafter out)) (rule^~ out)) limit [::])
  =1 law (plain V p stop limit limit [::]).

Lemma whole_lossless rule drafter :
  (forall out, lossless V p out (bind (grow V (drafter out)) (rule^~ out))) ->
  (forall d out, some_tokens (rule d out)) -> whole rule drafter.
Proof.
move=> fairly some; have := @whole_sequences_8 R T V p stop limit
  (fun out => bind (grow V (drafter out)) (rule^~ out)) (fun _ => p) (fun _ => p_law).
move=> /(_ (fun _ _ _ _ => erefl) (fun out _ => fairly out)).
move=> /(_ (fun out => emits_grow _ (some^~ out)) limit [::]).
by rewrite subn0; apply.
Qed.

(** Drafters may differ from text to text, as long as they tell the truth. *)
Variable drafter : text -> plan R T.
Let truth (declared : declaration R T) : Prop :=
  forall out, truthful V declared (drafter out) out [::].

Theorem token_whole_8 :
  (forall out, chains (drafter out)) -> truth (drawn_by q again) -> whole (token V p q) drafter.
Proof.
move=> c t; apply: whole_lossless => [out|d out]; last exact: emits_token.
exact: token_lossless_3.
Qed.

Theorem block_whole_8 :
  (forall out, chains (drafter out)) -> truth (drawn_by q again) -> whole (block V p q) drafter.
Proof.
move=> c t; apply: whole_lossless => [out|d out]; last exact: emits_block.
exact: block_lossless_6.
Qed.

Theorem rrs_with_whole_8 : truth (drawn_by q again) -> whole (rrs_with V p q) drafter.
Proof.
move=> t; apply: whole_lossless => [out|d out]; last exact: emits_rrs.
exact: rrs_with_lossless_6.
Qed.

Theorem rrs_without_whole_8 : truth (drawn_by q (without V)) -> whole (rrs_without V p q) drafter.
Proof.
move=> t; apply: whole_lossless => [out|d out]; last exact: emits_rrs.
exact: rrs_without_lossless_6.
Qed.

Theorem traversal_whole_8 : truth (drawn_by q (without V)) -> whole (traversal V p q) drafter.
Proof.
move=> t; apply: whole_lossless => [out|d out]; last exact: emits_visit.
exact: traversal_lossless_6.
Qed.

Theorem traversal_with_whole_8 : truth (drawn_by q again) -> whole (traversal_with V p q) drafter.
Proof.
move=> t; apply: whole_lossless => [out|d out]; last exact: emits_visit.
exact: traversal_with_lossless_6.
Qed.

(** Rules that hold draft by draft do not ask what is declared, only that something is. *)
Lemma draft_by_draft rule pl declared out :
  (forall d, all_in V d -> lossless V p out (rule d)) -> truthful V declared pl out [::] ->
  lossless V p out (bind (grow V pl) rule).
Proof.
move=> fairly t v fv; rewrite expect_bind -[RHS](expect_grow_const (v out) t).
by apply: eq_expect_grow => d ad; exact: fairly.
Qed.

Theorem match_whole_8 declared : truth declared -> whole (match_ V p) drafter.
Proof.
move=> t; apply: whole_lossless => [out|d out]; last exact: emits_match.
by apply: draft_by_draft (t out) => d _; exact: match_lossless_6.
Qed.

Theorem one_hot_whole_8 declared :
  (forall out, chains (drafter out)) -> truth declared -> whole (one_hot V p) drafter.
Proof.
move=> c t; apply: whole_lossless => [out|d out]; last exact: emits_one_hot.
move=> v fv; rewrite expect_bind -[RHS](expect_grow_const (v out) (t out)).
by apply: eq_expect_chains => // d ad cd; exact: one_hot_lossless_6.
Qed.

Theorem greedy_whole_8 declared (best : text -> T) :
  (forall c, best c \in V) -> (forall c, p c =1 point R (best c)) ->
  truth declared -> whole (greedy V p) drafter.
Proof.
move=> bV pE t; apply: whole_lossless => [out|d out].
  by apply: draft_by_draft (t out) => d _; exact: greedy_lossless_6 pE.
have some_top c : exists y, top V (p c) = Some y.
  by move: (bV c); rewrite /top; case: (V) => [//|x rest] _; eexists.
rewrite /greedy; have [y ->] := some_top out; apply: emits_walk => c k h.
by have [z ->] := some_top c; exact: h.
Qed.

Theorem target_only_whole_8 declared : truth declared -> whole (target_only V p) drafter.
Proof.
move=> t; apply: whole_lossless => [out|d out]; last exact: emits_target_only.
by apply: draft_by_draft (t out) => d ad; exact: target_only_lossless_6.
Qed.

End Sequences.
