(** The target's own law, completion by the target, and fair functions: specref/decode.py.

    A function v of the text is *fair* if its value at a text is the mean of its values one token
    later, drawn by the target. Such is the probability, seen from a text, that the target's
    continuation is this or that. A program that emits text is lossless iff it leaves the mean of
    every fair function alone; [lossless_law_3] reads this as equality of laws. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Target.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Variable p : text -> T -> R.

(** Plain decoding: the target draws n tokens. *)
Fixpoint target (n : nat) (ctx : text) : program R text :=
  if n is n'.+1 then
    Draw V (p ctx) (fun y => bind (target n' (rcons ctx y)) (fun out => Ret (y :: out)))
  else Ret [::].

(** The first n tokens of what was emitted and, if these are fewer, of the target's continuation. *)
Fixpoint complete (n : nat) (ctx : text) (emitted : text) : program R text :=
  match n, emitted with
  | n'.+1, x :: rest => bind (complete n' (rcons ctx x) rest) (fun out => Ret (x :: out))
  | _, _ => target n ctx
  end.

Definition fair (ctx : text) (v : text -> R) : Prop :=
  forall out, v (ctx ++ out) = \sum_(y <- V) p (ctx ++ out) y * v (rcons (ctx ++ out) y).

Definition lossless (ctx : text) (round : program R text) : Prop :=
  forall v, fair ctx v -> expect round (fun out => v (ctx ++ out)) = v ctx.

Lemma fair_at ctx v : fair ctx v -> v ctx = \sum_(y <- V) p ctx y * v (rcons ctx y).
Proof. by move=> /(_ [::]); rewrite cats0. Qed.

Lemma fair_rcons ctx x v : fair ctx v -> fair (rcons ctx x) v.
Proof. by move=> fv out; rewrite cat_rcons fv. Qed.

Hypothesis p_law : forall ctx, is_law V (p ctx).

(** The mean of f(first n tokens), seen from the first tokens. *)
Fixpoint value (n : nat) (f : text -> R) (ctx emitted : text) : R :=
  match n, emitted with
  | n'.+1, x :: rest => value n' (fun out => f (x :: out)) (rcons ctx x) rest
  | _, _ => expect (target n ctx) f
  end.

Lemma complete_value n f ctx emitted :
  expect (complete n ctx emitted) f = value n f ctx emitted.
Proof.
elim: n f ctx emitted => [|n ih] f ctx [|x rest] //=.
by rewrite expect_bind -ih.
Qed.

Lemma value_fair n f ctx emitted :
  value n f ctx emitted = \sum_(y <- V) p (ctx ++ emitted) y * value n f ctx (rcons emitted y).
Proof.
elim: n f ctx emitted => [|n ih] f ctx [|x rest] /=.
- by rewrite -mulr_suml -massE (p_law _).2 mul1r.
- by rewrite -mulr_suml -massE (p_law _).2 mul1r.
- rewrite totalE cats0; apply: eq_bigr => y _; rewrite expect_bind; congr (_ * _).
  by case: (n).
- by rewrite ih cat_rcons.
Qed.

(** The law of the first n tokens is the target's own, for every n. *)
Theorem lossless_law_3 n ctx round :
  lossless ctx round -> law (bind round (complete n ctx)) =1 law (target n ctx).
Proof.
move=> fairly out; rewrite /law expect_bind; pose f b := (b == out)%:R : R.
transitivity (expect round (fun a => value n f ctx a)).
  by apply: eq_expect => a; rewrite -complete_value.
have := fairly (fun t => value n f ctx (drop (size ctx) t)).
rewrite drop_size; under eq_expect do rewrite drop_size_cat //.
move=> ->; first by case: (n).
move=> e; rewrite drop_size_cat // value_fair; apply: eq_bigr => y _.
by rewrite rcons_cat drop_size_cat.
Qed.

(** Conversely, the law of the first n tokens for every n is all there is to say: n need only be as
    large as what is emitted. *)
Lemma target_fair n ctx v :
  fair ctx v -> expect (target n ctx) (fun out => v (ctx ++ out)) = v ctx.
Proof.
elim: n ctx => [|n ih] ctx fv; first by rewrite /= cats0.
rewrite (fair_at fv) /= totalE; apply: eq_bigr => y _; rewrite expect_bind /=.
under eq_expect do rewrite -cat_rcons.
by rewrite ih //; apply: fair_rcons.
Qed.

(** What a round emits may be continued by any other lossless program. *)
Lemma lossless_bind ctx round next :
  lossless ctx round -> (forall out, lossless (ctx ++ out) (next out)) ->
  lossless ctx (bind round (fun out => bind (next out) (fun more => Ret (out ++ more)))).
Proof.
move=> fairly then_ v fv; rewrite expect_bind -(fairly v fv); apply: eq_expect => out.
rewrite expect_bind /=; under eq_expect do rewrite catA.
by apply: then_ => more; rewrite -catA fv catA.
Qed.

End Target.
