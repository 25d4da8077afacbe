(** 4, 5. The lemma: verify a node with weight r, and emit exactly r times the target.

    [one_by_one] is specref/lemma.py's OneByOne: any number of children at a node, each drawn from
    a declared law; trees of any shape; commitment immediate or deferred. [owed] is the weight of
    the node times the law of the next token, at first r p.

    [contract_4]: on drafts of a drafter that tells the truth, a node that owes [owed] accepts with
    probability r = sum(owed), and its text then goes on as [owed] and the target below say. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Identities Draft Target.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Lemma.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Local Notation verdict := (option text).

(** How a child, verified with any weight by [f], is tried with a weight. *)
Definition immediate (f : R -> program R verdict) (weight : R) : program R verdict :=
  flip weight (f 1) (Ret None).

Definition deferred (f : R -> program R verdict) (weight : R) : program R verdict := f weight.

Variable commit : (R -> program R verdict) -> R -> program R verdict.
Variable p : text -> T -> R.
Variable declared : declaration R T.

(** What a node owes after a refusal that leaves [rest] of what it owed. *)
Definition refused (owed rest : T -> R) : T -> R :=
  let chance := mass V rest + (1 - mass V owed) in fun x => rest x / chance.

(** Accept the node itself with the weight that is left, and draw the next token. *)
Definition here (owed : T -> R) : program R verdict :=
  flip (mass V owed) (Draw V (normalise V owed) (fun y => Ret (Some [:: y]))) (Ret None).

Fixpoint one_by_one (d : draft T) (ctx before : text) (owed : T -> R) : program R verdict :=
  match d with
  | Last => here owed
  | Child x below next =>
      let s := declared ctx before x in
      let ctx' := rcons ctx x in
      bind (commit (fun weight => one_by_one below ctx' [::] (fun y => weight * p ctx' y))
                   (Num.min 1 (owed x / s x)))
           (fun found => if found is Some out then Ret (Some (x :: out))
                         else one_by_one next ctx (rcons before x) (refused owed (left owed s)))
  end.

Lemma one_by_one_last ctx before owed : one_by_one (Last) ctx before owed = here owed.
Proof. by []. Qed.

Lemma one_by_one_child x below next ctx before owed :
  one_by_one (Child x below next) ctx before owed
  = bind (commit (fun weight => one_by_one below (rcons ctx x) [::]
                                  (fun y => weight * p (rcons ctx x) y))
                 (Num.min 1 (owed x / declared ctx before x x)))
         (fun found => if found is Some out then Ret (Some (x :: out))
                       else one_by_one next ctx (rcons before x)
                              (refused owed (left owed (declared ctx before x)))).
Proof. by []. Qed.

(** One round: at the root the weight is 1. A verdict None has probability 0 there. *)
Definition verify (d : draft T) (ctx : text) : program R verdict :=
  one_by_one d ctx [::] (p ctx).

(** The value of a verdict: of the text, or z for a refusal. *)
Definition worth (v : text -> R) (z : R) (ctx : text) (found : verdict) : R :=
  if found is Some out then v (ctx ++ out) else z.

(** A commitment is right if, wherever [f] keeps the contract on the mean of the drafts that [m]
    grows below the child, so does the trial. *)
Definition commits : Prop :=
  forall (m : program R (draft T)) (f : draft T -> R -> program R verdict) F b weight,
    (forall c, expect m (fun _ => c) = c) ->
    (forall w, 0 <= w <= 1 -> expect m (fun d => expect (f d w) F) = (1 - w) * F None + w * b) ->
    0 <= weight <= 1 ->
    expect m (fun d => expect (commit (f d) weight) F) = (1 - weight) * F None + weight * b.

Hypothesis commit_ok : commits.
Hypothesis p_law : forall ctx, is_law V (p ctx).

(** With the chance that a refusal has, what is owed after it is [rest]. *)
Lemma settles (owed rest v : T -> R) z :
  (forall x, 0 <= rest x) -> mass V owed <= 1 ->
  let after := refused owed rest in
  (mass V rest + (1 - mass V owed)) * ((1 - mass V after) * z + \sum_(y <- V) after y * v y)
  = (1 - mass V owed) * z + \sum_(y <- V) rest y * v y.
Proof.
move=> rest0 owed1 after; set S := mass V rest; set D := S + _.
have S0 : 0 <= S := mass_ge0 V rest0.
have [D0|D0] := eqVneq D 0; last first.
  rewrite mulrDr mulrA mulrBr mulr1 big_distrr /=; congr (_ * _ + _).
    by rewrite massE -mulr_suml -massE mulrC divfK // [D]addrC addrK.
  by apply: eq_bigr => y _; rewrite /after /refused -/S -/D mulrA [D * _]mulrC divfK.
have /andP[/eqP S_0 /eqP r_1] : (S == 0) && (1 - mass V owed == 0).
  by rewrite -paddr_eq0 ?subr_ge0 //; apply/eqP.
by rewrite D0 r_1 !mul0r add0r mass0_sum.
Qed.

Lemma expect_here owed v z ctx :
  (forall y, 0 <= owed y) ->
  expect (here owed) (worth v z ctx)
  = (1 - mass V owed) * z + \sum_(y <- V) owed y * v (rcons ctx y).
Proof.
move=> owed0; rewrite /here expect_flip expect_draw addrC.
by under eq_bigr do rewrite /= cats1; rewrite normalise_sum.
Qed.

Section Step.
Variables (owed s : T -> R).
Hypothesis owed0 : forall x, 0 <= owed x.
Hypothesis owed1 : mass V owed <= 1.
Hypothesis s_law : is_law V s.

Lemma weight01 x : 0 <= Num.min 1 (owed x / s x) <= 1.
Proof. by rewrite le_minr ler01 divr_ge0 ?(s_law.1) //= le_minl lexx. Qed.

Lemma refused_ge0 x : 0 <= refused owed (left owed s) x.
Proof.
rewrite /refused divr_ge0 ?left_ge0 // addr_ge0 ?subr_ge0 ?mass_ge0 // => y; exact: left_ge0.
Qed.

Lemma refused_le1 : mass V (refused owed (left owed s)) <= 1.
Proof.
rewrite massE -mulr_suml -massE; set S := mass V (left owed s).
have S0 : 0 <= S := mass_ge0 V (left_ge0 owed s).
have [D0|D0] := eqVneq (S + (1 - mass V owed)) 0; first by rewrite D0 invr0 mulr0 ler01.
have D1 : 0 <= S + (1 - mass V owed) by rewrite addr_ge0 // subr_ge0.
have Dgt0 : 0 < S + (1 - mass V owed) by rewrite lt_neqAle eq_sym D0.
by rewrite ler_pdivr_mulr // mul1r ler_addl subr_ge0.
Qed.

(** A refusal, with the chance that it has, settles what is left (identities ii and iii). *)
Lemma refusal_settles (v : T -> R) z :
  let after := refused owed (left owed s) in
  (1 - \sum_(x <- V) s x * Num.min 1 (owed x / s x)) *
    ((1 - mass V after) * z + \sum_(y <- V) after y * v y)
  = (1 - mass V owed) * z + \sum_(y <- V) left owed s y * v y.
Proof.
move=> after; under eq_bigr do rewrite (identity_1_i owed0 s_law.1).
by rewrite identity_1_ii // [1 - _ + _]addrC settles //; exact: left_ge0.
Qed.

End Step.

Theorem contract_4 pl ctx before owed v z :
  truthful V declared pl ctx before -> fair V p ctx v ->
  (forall x, 0 <= owed x) -> mass V owed <= 1 ->
  expect (grow V pl) (fun d => expect (one_by_one d ctx before owed) (worth v z ctx))
  = (1 - mass V owed) * z + \sum_(y <- V) owed y * v (rcons ctx y).
Proof.
elim: pl ctx before owed z => [|s below ihb next ihn] ctx before owed z.
  by move=> _ fv owed0 owed1; rewrite [grow V _]/= expect_ret one_by_one_last expect_here.
move=> /= [s_law h] fv owed0 owed1; rewrite totalE.
pose a x := Num.min 1 (owed x / s x); pose rest := refused owed (left owed s).
pose Z := (1 - mass V rest) * z + \sum_(y <- V) rest y * v (rcons ctx y).
transitivity (\sum_(x <- V) s x * ((1 - a x) * Z + a x * v (rcons ctx x))).
  rewrite big_seq [RHS]big_seq; apply: eq_bigr => x xV.
  have [->|sx] := eqVneq (s x) 0; first by rewrite !mul0r.
  have [ds hb hn] := h x xV sx; congr (_ * _); rewrite expect_bind.
  transitivity (expect (grow V (below x)) (fun child =>
      expect (commit (fun w => one_by_one child (rcons ctx x) [::] (fun y => w * p (rcons ctx x) y))
                     (a x))
             (worth v Z (rcons ctx x)))).
    apply: eq_expect => child; rewrite expect_bind /= /a -(ds x).
    under eq_expect do rewrite expect_bind.
    rewrite expect_swap; apply: eq_expect => -[out|] /=.
      by rewrite (expect_grow_const _ (hn child)) cat_rcons.
    rewrite ihn //; last 2 first.
    - by move=> y; apply: refused_ge0.
    - by apply: refused_le1.
    have same : refused owed (left owed (declared ctx before x)) =1 rest.
      have leftE : left owed (declared ctx before x) =1 left owed s by move=> y; rewrite /left ds.
      by move=> y; rewrite /rest /refused leftE !massE (eq_bigr _ (fun y _ => leftE y)).
    rewrite /Z !massE (eq_bigr _ (fun y _ => same y)); congr (_ + _).
    by apply: eq_bigr => y _; rewrite same.
  apply: commit_ok; last exact: weight01.
    by move=> c; apply: expect_grow_const hb.
  move=> w /andP[w0 w1]; rewrite ihb //; last 3 first.
  - exact: fair_rcons.
  - by move=> y; rewrite mulr_ge0 // (p_law _).1.
  - by rewrite massE -mulr_sumr -massE (p_law _).2 mulr1.
  rewrite massE -mulr_sumr -massE (p_law _).2 mulr1; congr (_ + _).
  by rewrite (fair_at (fair_rcons x fv)) big_distrr; apply: eq_bigr => y _; rewrite /= mulrA.
have -> : \sum_(x <- V) s x * ((1 - a x) * Z + a x * v (rcons ctx x))
  = (1 - \sum_(x <- V) s x * a x) * Z + \sum_(x <- V) Num.min (s x) (owed x) * v (rcons ctx x).
  have -> : 1 - \sum_(x <- V) s x * a x = \sum_(x <- V) (s x - s x * a x).
    by rewrite sumrB -massE s_law.2.
  rewrite mulr_suml -big_split; apply: eq_bigr => x _ /=.
  by rewrite -(identity_1_i owed0 s_law.1) -/(a x) mulrDr !mulrA mulrBr mulr1.
rewrite refusal_settles // -addrA -big_split; congr (_ + _).
by apply: eq_bigr => y _; rewrite /= -mulrDl addrC identity_1_iii.
Qed.

(** At the root nothing is refused, and the text is the target's own. *)
Theorem verify_4 pl ctx v z :
  truthful V declared pl ctx [::] -> fair V p ctx v ->
  expect (grow V pl) (fun d => expect (verify d ctx) (worth v z ctx)) = v ctx.
Proof.
move=> tr fv; rewrite (contract_4 z tr fv); last 2 first.
- exact: (p_law ctx).1.
- by rewrite (p_law ctx).2.
by rewrite (p_law ctx).2 subrr mul0r add0r -fair_at.
Qed.

End Lemma.

Section Commitments.
Variables (R : realFieldType) (T : eqType).

Lemma deferred_commits_5 : commits (@deferred R T).
Proof. by move=> m f F b weight _ keeps ok; exact: keeps. Qed.

Lemma immediate_commits_5 : commits (@immediate R T).
Proof.
move=> m f F b weight m1 keeps ok; rewrite /immediate.
under eq_expect do rewrite expect_flip expect_ret.
rewrite expectD !expectZ m1 keeps ?ler01 ?lexx // subrr mul0r add0r mul1r.
exact: addrC.
Qed.

End Commitments.
