(** Programs that draw at random, and their expectations: specref/choice.py.

    A program ends with a result or draws from finitely many weights and goes on. Its meaning is
    the expectation of a function of the result; its law is the expectation of an indicator. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Programs.
Variable R : realFieldType.

Inductive program (A : Type) : Type :=
| Ret (a : A)
| Draw (B : Type) (among : seq B) (weight : B -> R) (next : B -> program A).

(** A sum that computes; [totalE] says that it is MathComp's. *)
Definition total B (among : seq B) (f : B -> R) : R := foldr (fun b t => f b + t) 0 among.

Fixpoint expect A (m : program A) (f : A -> R) : R :=
  match m with
  | Ret a => f a
  | Draw _ among w next => total among (fun b => w b * expect (next b) f)
  end.

Definition law (A : eqType) (m : program A) (a : A) : R := expect m (fun b => (b == a)%:R).

Fixpoint bind A B (m : program A) (k : A -> program B) : program B :=
  match m with
  | Ret a => k a
  | Draw _ among w next => Draw among w (fun c => bind (next c) k)
  end.

Definition flip A (chance : R) (yes no : program A) : program A :=
  Draw [:: true; false] (fun b : bool => if b then chance else 1 - chance)
    (fun b => if b then yes else no).

(** Emit x, and then what [m] emits. *)
Definition emit T (x : T) (m : program (seq T)) : program (seq T) :=
  bind m (fun out => Ret (x :: out)).

(** Every way the choices can fall, with its mass: what [specref.law] visits. *)
Fixpoint leaves A (m : program A) : seq (A * R) :=
  match m with
  | Ret a => [:: (a, 1)]
  | Draw _ among w next =>
      flatten [seq (let c := w b in
                    if c == 0 then [::] else [seq (l.1, c * l.2) | l <- leaves (next b)])
              | b <- among]
  end.

Lemma totalE B (among : seq B) f : total among f = \sum_(b <- among) f b.
Proof. by elim: among => [|b s ih]; rewrite ?big_nil //= ih big_cons. Qed.

Lemma expect_ret A (a : A) f : expect (Ret a) f = f a.
Proof. by []. Qed.

Lemma expect_draw A B (among : seq B) w (next : B -> program A) f :
  expect (Draw among w next) f = \sum_(b <- among) w b * expect (next b) f.
Proof. exact: totalE. Qed.

Lemma expect_flip A c (yes no : program A) f :
  expect (flip c yes no) f = c * expect yes f + (1 - c) * expect no f.
Proof. by rewrite /flip expect_draw !big_cons big_nil addr0. Qed.

Lemma expect_bind A B (m : program A) (k : A -> program B) f :
  expect (bind m k) f = expect m (fun a => expect (k a) f).
Proof.
elim: m => [//|C among w next ih] /=.
by rewrite !totalE; apply: eq_bigr => c _; rewrite ih.
Qed.

Lemma expect_emit T (x : T) m f : expect (emit x m) f = expect m (fun out => f (x :: out)).
Proof. exact: expect_bind. Qed.

Lemma eq_expect A (m : program A) f g : f =1 g -> expect m f = expect m g.
Proof.
by move=> fg; elim: m => [//|C s w k ih] /=; rewrite !totalE; apply: eq_bigr => c _; rewrite ih.
Qed.

Lemma expectD A (m : program A) f g : expect m (fun a => f a + g a) = expect m f + expect m g.
Proof.
elim: m => [//|C s w k ih] /=; rewrite !totalE -big_split; apply: eq_bigr => c _.
by rewrite ih mulrDr.
Qed.

Lemma expectZ A (m : program A) c f : expect m (fun a => c * f a) = c * expect m f.
Proof.
elim: m => [//|C s w k ih] /=; rewrite !totalE big_distrr; apply: eq_bigr => b _ /=.
by rewrite ih mulrCA.
Qed.

Lemma expect_sum A B (m : program A) (s : seq B) (f : B -> A -> R) :
  expect m (fun a => \sum_(b <- s) f b a) = \sum_(b <- s) expect m (f b).
Proof.
elim: s => [|b s ih].
  under eq_expect do rewrite big_nil -(mul0r 0).
  by rewrite expectZ mul0r big_nil.
by under eq_expect do rewrite big_cons; rewrite expectD ih big_cons.
Qed.

(** Independent programs may be run in either order. *)
Lemma expect_swap A B (m : program A) (n : program B) (f : A -> B -> R) :
  expect m (fun a => expect n (f a)) = expect n (fun b => expect m (f^~ b)).
Proof.
elim: m => [//|C s w k ih]; rewrite expect_draw.
under [RHS]eq_expect do rewrite expect_draw.
by rewrite expect_sum; apply: eq_bigr => c _; rewrite ih expectZ.
Qed.

Lemma expect_leaves A (m : program A) f : expect m f = \sum_(l <- leaves m) l.2 * f l.1.
Proof.
elim: m => [a|C s w k ih]; first by rewrite /= big_seq1 mul1r.
rewrite expect_draw /= big_flatten big_map; apply: eq_bigr => c _ /=.
case: eqP => [->|_]; first by rewrite mul0r big_nil.
by rewrite ih big_map big_distrr; apply: eq_bigr => l _; rewrite /= mulrA.
Qed.

End Programs.

Arguments Ret {R A} a.
