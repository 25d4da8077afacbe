(** 6. Sample-and-match, and greedy verification: specref/rules/match.py and greedy.py.

    Both are lossless on each draft by itself, of any origin and shape: nothing is asked of its law.
    Greedy verification is lossless on targets at temperature 0. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Match.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Variable p : text -> T -> R.

(** Emit y; if it was drafted (the first such child counts), go on behind it. [next] is how the
    token after a text is found. *)
Fixpoint walk (next : text -> (T -> program R text) -> program R text) (d : draft T) (ctx : text)
    (y : T) : program R text :=
  match d with
  | Last => Ret [:: y]
  | Child x below others =>
      if y == x then emit y (next (rcons ctx y) (walk next below (rcons ctx y)))
      else walk next others ctx y
  end.

Definition match_ (d : draft T) (ctx : text) : program R text :=
  let draw ctx k := Draw V (p ctx) k in draw ctx (walk draw d ctx).

(** The likeliest token, the first of several; none if there are no tokens. *)
Definition top (w : T -> R) : option T :=
  if V is x :: rest then Some (foldl (fun best y => if w best < w y then y else best) x rest)
  else None.

Definition greedy (d : draft T) (ctx : text) : program R text :=
  let take ctx k := if top (p ctx) is Some y then k y else Ret [::] in take ctx (walk take d ctx).

(** Any way to find the next token that has its law will do. *)
Lemma walk_fair next d ctx y v :
  (forall ctx k, expect (next ctx k) =1 fun f => \sum_(x <- V) p ctx x * expect (k x) f) ->
  fair V p (rcons ctx y) v ->
  expect (walk next d ctx y) (fun out => v (ctx ++ out)) = v (rcons ctx y).
Proof.
move=> nextE; elim: d ctx y => [|x below ihb others iho] ctx y fv; first by rewrite /= cats1.
rewrite [walk _ _ _ _]/=; case: eqP => [_|_]; last exact: iho.
rewrite expect_emit nextE (fair_at fv); apply: eq_bigr => z _; congr (_ * _).
under eq_expect do rewrite -cat_rcons; apply: ihb; exact: fair_rcons.
Qed.

Theorem match_lossless_6 d ctx : lossless V p ctx (match_ d ctx).
Proof.
move=> v fv; rewrite /match_ expect_draw (fair_at fv); apply: eq_bigr => y _; congr (_ * _).
by apply: walk_fair (fair_rcons y fv) => c k f; exact: expect_draw.
Qed.

Lemma top_point b : uniq V -> b \in V -> top (point R b) = Some b.
Proof.
rewrite /top; case: V => [//|x rest] /= /andP[xr ur] bV; congr Some.
have stay (s : seq T) : b \notin s ->
    foldl (fun best y => if point R b best < point R b y then y else best) b s = b.
  elim: s => [//|y s ih]; rewrite inE negb_or => /andP[by_ bs] /=.
  by rewrite /point eqxx eq_sym (negbTE by_) ltr10 ih.
have come (s : seq T) c : c != b -> uniq s -> b \in s ->
    foldl (fun best y => if point R b best < point R b y then y else best) c s = b.
  elim: s c => [//|y s ih] c cb /= /andP[ys us]; rewrite inE => /orP[/eqP yb|bs].
    have -> : point R b c < point R b y by rewrite /point -yb eqxx (negbTE cb) ltr01.
    by rewrite -yb stay // yb.
  have yb : y != b by apply: contraNneq ys => ->.
  have -> : point R b c < point R b y = false by rewrite /point (negbTE cb) (negbTE yb) ltxx.
  exact: ih.
move: bV; rewrite inE; case: eqP => [bx _|/eqP bx /= br]; first by rewrite -bx stay // bx.
by apply: come; rewrite // eq_sym.
Qed.

Theorem greedy_lossless_6 d ctx (best : text -> T) :
  uniq V -> (forall c, best c \in V) -> (forall c, p c =1 point R (best c)) ->
  lossless V p ctx (greedy d ctx).
Proof.
move=> uV bV pE; set take := fun c (k : T -> program R text) =>
  if top (p c) is Some y then k y else Ret [::].
have takeE c k : expect (take c k) =1 fun f => \sum_(x <- V) p c x * expect (k x) f.
  move=> f; under eq_bigr do rewrite pE; rewrite point_sum // /take.
  suff -> : top (p c) = Some (best c) by [].
  rewrite -(top_point uV (bV c)) /top; case: (V) => [//|x s]; congr Some.
  by elim: s x => [//|y s ih] x /=; rewrite !pE ih.
move=> v fv; rewrite /greedy -/take takeE (fair_at fv); apply: eq_bigr => y _; congr (_ * _).
by apply: walk_fair takeE (fair_rcons y fv).
Qed.

End Match.
