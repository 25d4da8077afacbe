(** Drafts, and the programs that grow them: specref/draft.py.

    A draft is a tree in the form "first child, next sibling". Its nodes hold tokens alone: target
    and draft are models, functions from a context to a law, and a node's laws are theirs at its
    text.

    A [plan] is any drafter that does not anticipate. Token by token, depth first, it says from
    which law the next child is drawn, or that there is none; it sees all that was drafted before
    this token at the same parent or above it, subtrees included, and never the token itself or a
    later one. So the number of children, and the depth, may differ from text to text. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Drafts.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation row := (T -> R).
Local Notation text := (seq T).
Local Notation model := (text -> row).

Inductive draft : Type :=
| Last
| Child (x : T) (below : draft) (next : draft).

Inductive plan : Type :=
| Stop
| Propose (s : row) (below : T -> plan) (next : T -> draft -> plan).

Fixpoint grow (pl : plan) : program R draft :=
  match pl with
  | Stop => Ret Last
  | Propose s below next =>
      Draw V s (fun x =>
        bind (grow (below x)) (fun child =>
          bind (grow (next x child)) (fun others => Ret (Child x child others))))
  end.

(** Declared laws: from a node's text and its earlier children to the law of the next child. (It
    may depend on that child itself: so do the declarations of certain drafts.) *)
Definition declaration := text -> seq T -> T -> row.

(** Every token that can be drawn is drawn from the law that is declared for it. *)
Fixpoint truthful (declared : declaration) (pl : plan) (ctx : text) (before : seq T) : Prop :=
  match pl with
  | Stop => True
  | Propose s below next =>
      is_law V s /\
      forall x, x \in V -> s x != 0 ->
        [/\ declared ctx before x =1 s,
            truthful declared (below x) (rcons ctx x) [::]
          & forall child, truthful declared (next x child) ctx (rcons before x)]
  end.

(** Chains: no node has a second child. *)
Fixpoint is_chain (d : draft) : bool :=
  match d with
  | Last => true
  | Child _ below Last => is_chain below
  | _ => false
  end.

Fixpoint chains (pl : plan) : Prop :=
  match pl with
  | Stop => True
  | Propose _ below next => (forall x, chains (below x)) /\ forall x child, next x child = Stop
  end.

Fixpoint chain (tokens : seq T) : draft :=
  if tokens is x :: rest then Child x (chain rest) Last else Last.

(** A given draft, grown without chance; [all_in d] says that its tokens are in V. *)
Fixpoint given (d : draft) : plan :=
  match d with
  | Last => Stop
  | Child x below next => Propose (point R x) (fun _ => given below) (fun _ _ => given next)
  end.

Fixpoint all_in (d : draft) : bool :=
  match d with
  | Last => true
  | Child x below next => [&& x \in V, all_in below & all_in next]
  end.

(** The drafters of specref/draft.py, for one number of siblings per level. *)
Section Shapes.
Variable q : model.

Fixpoint siblings_with (below : T -> plan) (k : nat) (s : row) : plan :=
  if k is k'.+1 then Propose s below (fun _ _ => siblings_with below k' s) else Stop.

Fixpoint siblings_without (below : T -> plan) (k : nat) (s : row) : plan :=
  if k is k'.+1 then
    if mass V s == 0 then Stop
    else Propose s below (fun x _ => siblings_without below k' (without V s x))
  else Stop.

Fixpoint with_replacement (widths : seq nat) (ctx : text) : plan :=
  if widths is w :: levels then
    siblings_with (fun x => with_replacement levels (rcons ctx x)) w (q ctx)
  else Stop.

Fixpoint without_replacement (widths : seq nat) (ctx : text) : plan :=
  if widths is w :: levels then
    siblings_without (fun x => without_replacement levels (rcons ctx x)) w (q ctx)
  else Stop.

End Shapes.

(** What siblings are declared to be drawn from: q, changed by every one before ... *)
Definition drawn_by (q : model) (following : row -> T -> row) : declaration :=
  fun ctx before _ => foldl following (q ctx) before.

(** ... not at all with replacement, less the token without; ... *)
Definition again (s : row) (x : T) : row := s.

(** ... or, whatever a draft is, it is certain once it is given. *)
Definition certain : declaration := fun _ _ x => point R x.

(** A truthful plan grows a draft with probability 1. *)
Lemma expect_grow_const declared pl ctx before c :
  truthful declared pl ctx before -> expect (grow pl) (fun _ => c) = c.
Proof.
elim: pl ctx before => [//|s below ihb next ihn] ctx before /= [[s0 s1] h].
rewrite totalE -[RHS]mul1r -s1 massE mulr_suml big_seq [RHS]big_seq; apply: eq_bigr => x xV.
have [->|sx] := eqVneq (s x) 0; first by rewrite !mul0r.
have [_ hb hn] := h x xV sx.
rewrite expect_bind; congr (_ * _); rewrite -[RHS](ihb x (rcons ctx x) [::]) //.
by apply: eq_expect => child; rewrite expect_bind /= (ihn x child ctx (rcons before x)).
Qed.

Lemma given_truthful d ctx before : uniq V -> all_in d -> truthful certain (given d) ctx before.
Proof.
move=> uV; elim: d ctx before => [//|y below ihb next ihn] ctx before /= /and3P[yV ab an].
split=> [|x _]; first exact: point_law.
rewrite /point pnatr_eq0 eqb0 negbK => /eqP->.
by split=> //; [apply: ihb | move=> child; apply: ihn].
Qed.

Lemma expect_given d f : uniq V -> all_in d -> expect (grow (given d)) f = f d.
Proof.
move=> uV; elim: d f => [//|y below ihb next ihn] f /= /and3P[yV ab an].
by rewrite totalE point_sum // expect_bind ihb // expect_bind ihn.
Qed.

(** Only drafts of tokens of V are grown; on drafters of chains, only chains. *)
Lemma eq_expect_grow pl f g :
  (forall d, all_in d -> f d = g d) -> expect (grow pl) f = expect (grow pl) g.
Proof.
elim: pl f g => [|s below ihb next ihn] f g fg /=; first exact: fg.
rewrite !totalE big_seq [RHS]big_seq; apply: eq_bigr => x xV; rewrite !expect_bind; congr (_ * _).
apply: ihb => b ab; rewrite !expect_bind; apply: ihn => d ad /=.
by apply: fg; rewrite /= xV ab ad.
Qed.

Lemma eq_expect_chains pl f g :
  chains pl -> (forall d, all_in d -> is_chain d -> f d = g d) ->
  expect (grow pl) f = expect (grow pl) g.
Proof.
elim: pl f g => [|s below ihb next ihn] f g /= => [_ fg|[cb cn] fg]; first exact: fg.
rewrite !totalE big_seq [RHS]big_seq; apply: eq_bigr => x xV; rewrite !expect_bind; congr (_ * _).
by apply: ihb => // d ad cd; rewrite cn /=; apply: fg => //=; rewrite xV ad.
Qed.

Lemma with_replacement_chains q gamma ctx : chains (with_replacement q (nseq gamma 1%N) ctx).
Proof. by elim: gamma ctx => [//|gamma ih] ctx /=; split. Qed.

(** The drafters of specref/draft.py tell the truth. *)
Section Truthful.
Variable q : model.
Hypothesis q_law : forall ctx, is_law V (q ctx).

Lemma with_replacement_truthful widths ctx :
  truthful (drawn_by q again) (with_replacement q widths ctx) ctx [::].
Proof.
have againE before : foldl again (q ctx) before = q ctx by elim: before.
elim: widths ctx againE => [//|w levels ih] ctx againE /=.
elim: w [::] => [//|w iw] before /=; split=> // x xV sx.
split=> //; first by rewrite /drawn_by againE.
by apply: ih => b; elim: b.
Qed.

Lemma without_replacement_truthful widths ctx :
  truthful (drawn_by q (without V)) (without_replacement q widths ctx) ctx [::].
Proof.
elim: widths ctx => [//|w levels ih] ctx /=; set below := fun x => _.
have: forall before s, foldl (without V) (q ctx) before = s -> (forall x, 0 <= s x) ->
    (mass V s != 0 -> is_law V s) ->
    truthful (drawn_by q (without V)) (siblings_without below w s) ctx before.
  elim: w => [//|w iw] before s sE s0 s_law /=; have [//|m0] := eqVneq (mass V s) 0.
  split; first exact: s_law.
  move=> x xV sx; split; [by rewrite /drawn_by sE | exact: ih |]; move=> child.
  have r0 y : 0 <= (if y == x then 0 else s y) by case: ifP.
  apply: iw; first by rewrite foldl_rcons sE.
    by move=> y; apply: divr_ge0; rewrite ?mass_ge0.
  move=> mx; apply: normalise_law => //; apply: contraNneq mx => mx0.
  by rewrite massE -mulr_suml -massE mx0 mul0r.
by apply=> [|x|_]; [| exact: (q_law ctx).1 | exact: q_law].
Qed.

End Truthful.

End Drafts.

Arguments Last {T}.
Arguments Stop {R T}.
Arguments again {R T} s x.
