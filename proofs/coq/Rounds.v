(** 8. Many rounds, with stops: specref/decode.py and stops.py.

    A stopping set says of a text whether it is finished. Whole sequences are cut at their first
    finished beginning. Rounds that are lossless at every unfinished text, and emit at least one
    token each, emit whole sequences with the law of plain decoding, cut in the same way. The rounds
    may differ from text to text in rule, shape and draft model, and behind an end, where nothing
    counts, in the target as well. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Target.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Rounds.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Variable p : text -> T -> R.

(** Whether a text is finished; the longest have [limit] tokens. *)
Variable stop : text -> bool.
Variable limit : nat.

Definition over (out : text) : bool := stop out || (limit <= size out)%N.

(** [out] is unfinished, or finished by its last token; cut what follows at the first end. *)
Fixpoint cut (out more : text) : text :=
  if over out then out else if more is x :: rest then cut (rcons out x) rest else out.

(** Plain decoding until the text is finished: [fuel] tokens at most. *)
Fixpoint plain (fuel : nat) (out : text) : program R text :=
  if over out then Ret out
  else if fuel is fuel'.+1 then Draw V (p out) (fun y => plain fuel' (rcons out y)) else Ret out.

(** [fuel] rounds at most. *)
Fixpoint decode (round : text -> program R text) (fuel : nat) (out : text) : program R text :=
  if over out then Ret out
  else if fuel is fuel'.+1 then
    bind (round out) (fun more => decode round fuel' (cut out more)) else Ret out.

(** The mean of f at the end of plain decoding, seen from [out] and what was drawn behind it. *)
Definition stopped (f : text -> R) (out more : text) : R :=
  let t := cut out more in expect (plain (limit - size t) t) f.

Lemma plain_over fuel out f : over out -> expect (plain fuel out) f = f out.
Proof. by case: fuel => [|fuel] /= ->. Qed.

Lemma plain_step out f : ~~ over out ->
  expect (plain (limit - size out) out) f
  = \sum_(y <- V) p out y * expect (plain (limit - size (rcons out y)) (rcons out y)) f.
Proof.
move=> no; have := no; rewrite negb_or -ltnNge => /andP[_ lt].
rewrite -(subnSK lt) /= (negbTE no) expect_draw; apply: eq_bigr => y _.
by rewrite size_rcons.
Qed.

Lemma cut_over out more : over out -> cut out more = out.
Proof. by case: more => [|x more] /= ->. Qed.

Lemma cut_rcons out more y :
  cut out (rcons more y)
  = if over (cut out more) then cut out more else rcons (cut out more) y.
Proof.
elim: more out => [|x more ih] out /=; first by case: ifP => o; rewrite ?o //; case: ifP.
by case: ifP => o; rewrite ?o.
Qed.

(** Where nothing has ended, cutting does nothing. *)
Lemma cut_cat out more : ~~ over (cut out more) -> cut out more = out ++ more.
Proof.
elim: more out => [|x more ih] out /=; first by case: ifP => _; rewrite cats0.
by case: ifP => [o|_ no]; rewrite ?o // -cat_rcons; apply: ih.
Qed.

(** The value of plain decoding is fair for every target that is p wherever nothing has ended. *)
Lemma stopped_fair (p' : text -> T -> R) out f v :
  (forall t, is_law V (p' t)) -> (forall t, ~~ over t -> p' t =1 p t) ->
  (forall more, v (out ++ more) = stopped f out more) -> fair V p' out v.
Proof.
move=> p'_law same vE more; under eq_bigr do rewrite rcons_cat vE.
rewrite vE /stopped; have [o|no] := boolP (over (cut out more)).
  under eq_bigr do rewrite cut_rcons o.
  by rewrite -mulr_suml -massE (p'_law _).2 mul1r.
rewrite plain_step //; apply: eq_bigr => y _.
by rewrite cut_rcons (negbTE no) (cut_cat no) same // -cut_cat.
Qed.

Variable round : text -> program R text.
Variable target_of : text -> text -> T -> R.

(** The target that a round at [out] is given: p, but behind an end it may be anything. *)
Hypothesis target_law : forall out t, is_law V (target_of out t).
Hypothesis target_same : forall out t, ~~ over t -> target_of out t =1 p t.
Hypothesis round_lossless : forall out, ~~ over out -> lossless V (target_of out) out (round out).

Lemma one_round_8 out f :
  ~~ over out ->
  expect (round out) (fun more => stopped f out more)
  = expect (plain (limit - size out) out) f.
Proof.
move=> no; pose v t := stopped f out (drop (size out) t).
have vE more : v (out ++ more) = stopped f out more by rewrite /v drop_size_cat.
have fv := stopped_fair (target_law out) (@target_same out) vE.
have := round_lossless no fv; under eq_expect do rewrite vE.
by rewrite -[in v out](cats0 out) vE /stopped /= if_same.
Qed.

(** The mean over sequences, and what is unfinished when the rounds run out is finished plainly. *)
Theorem rounds_8 rounds out f :
  expect (decode round rounds out) (fun t => expect (plain (limit - size t) t) f)
  = expect (plain (limit - size out) out) f.
Proof.
elim: rounds out => [|n ih] out /=; first by case: ifP.
case: ifP => [//|/negbT no]; rewrite expect_bind -one_round_8 //.
by apply: eq_expect => more; rewrite ih.
Qed.

(** Nothing is left unfinished after [limit] rounds that emit a token each. *)
Fixpoint emits (A : Type) (ok : A -> bool) (m : program R A) : Prop :=
  match m with
  | Ret a => ok a
  | Draw B among w next => forall b, emits ok (next b)
  end.

Hypothesis round_emits : forall out, emits (fun more => 0 < size more)%N (round out).

Lemma eq_expect_emits (A : Type) (ok : A -> bool) (m : program R A) f g :
  emits ok m -> (forall a, ok a -> f a = g a) -> expect m f = expect m g.
Proof.
elim: m => [a|B among w next ih] /=; first by move=> h fg; exact: fg.
by move=> h fg; rewrite !totalE; apply: eq_bigr => b _; rewrite ih.
Qed.

Lemma cut_grows out more :
  ~~ over out -> (0 < size more)%N -> (size out < size (cut out more))%N.
Proof.
move=> no; case: more => [//|x more] _ /=; rewrite (negbTE no).
have: (size out < size (rcons out x))%N by rewrite size_rcons.
elim: more (rcons out x) => [|y more ih] t lt /=; first by case: ifP.
by case: ifP => // _; apply: ih; rewrite size_rcons ltnW.
Qed.

Theorem whole_sequences_8 rounds out :
  (limit - size out <= rounds)%N ->
  law (decode round rounds out) =1 law (plain (limit - size out) out).
Proof.
move=> enough t; rewrite /law -(rounds_8 rounds).
elim: rounds out enough => [|n ih] out enough.
  have o : over out by rewrite /over -subn_eq0 -leqn0 enough orbT.
  by rewrite /= o /= plain_over.
rewrite /=; case: ifP => [o|/negbT no]; first by rewrite /= plain_over.
rewrite !expect_bind; apply: (eq_expect_emits (round_emits out)) => more some.
apply: ih; have lt := cut_grows no some; rewrite leq_subLR in enough.
by rewrite leq_subLR; apply: leq_trans enough _; rewrite addnS -addSn leq_add2r.
Qed.

End Rounds.
