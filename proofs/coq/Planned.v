(** 9. Plans at every node of a tree: specref/lemma.py's Planned.

    Siblings are drafted together, as a tuple; each is accepted with a share of the tuple's mass,
    tried as this share over what the members before it have left of 1; what no member receives is
    accepted at the node itself. Immediate or deferred, with a plan for whatever a node owes: this
    is nested optimal transport, and with particular plans K-SEQ, SpecHub, importance sampling,
    greedy multi-draft and one-shot rejection. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target Lemma.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Planned.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Local Notation row := (T -> R).
Local Notation verdict := (option text).

(** A drafter of tuples: some law of tuples, and below each member another such drafter. *)
Inductive joint : Type :=
| Nothing
| Tuple (among : seq text) (mu : text -> R) (below : text -> nat -> T -> joint).

(** The children [members], of which the first is number i; each with its own subtree. *)
Definition siblings (below : nat -> T -> program R (draft T)) :
    text -> nat -> program R (draft T) :=
  fix grow_from (members : text) (i : nat) :=
    if members is x :: others then
      bind (below i x) (fun child =>
        bind (grow_from others i.+1) (fun rest => Ret (Child x child rest)))
    else Ret Last.

Fixpoint grow_joint (j : joint) : program R (draft T) :=
  match j with
  | Nothing => Ret Last
  | Tuple among mu below =>
      Draw among mu (fun t => siblings (fun i x => grow_joint (below t i x)) t 0)
  end.

Variable commit : (R -> program R verdict) -> R -> program R verdict.
Variable p : text -> row.

(** The plan at a text for what is owed there: the share of each member of a tuple, given the tuple,
    and what is owed besides. *)
Variable shares : text -> row -> text -> seq R.
Variable besides : text -> row -> row.

(** The tokens of a node's children. *)
Fixpoint tuple_of (d : draft T) : text := if d is Child x _ next then x :: tuple_of next else [::].

(** Without siblings there is no plan; all is owed at the node. *)
Definition at_last (ctx : text) (owed : row) (t : text) : row :=
  if t is [::] then owed else refused V owed (besides ctx owed).

(** The children still to try, their shares, what of 1 is unused, and what is owed at the last. *)
Fixpoint planned (d : draft T) (ctx : text) (share : seq R) (unused : R) (last : row) :
    program R verdict :=
  match d with
  | Last => here V last
  | Child x below next =>
      let ctx' := rcons ctx x in
      bind (commit (fun weight =>
                      let owed := fun y => weight * p ctx' y in
                      planned below ctx' (shares ctx' owed (tuple_of below)) 1
                              (at_last ctx' owed (tuple_of below)))
                   (head 0 share / unused))
           (fun found => if found is Some out then Ret (Some (x :: out))
                         else planned next ctx (behead share) (unused - head 0 share) last)
  end.

Definition verify_planned (d : draft T) (ctx : text) (owed : row) : program R verdict :=
  planned d ctx (shares ctx owed (tuple_of d)) 1 (at_last ctx owed (tuple_of d)).

(** A plan is right if it takes no more than there is of a tuple, and emits no more than is owed. *)
Definition plans (among : seq text) (mu : text -> R) (ctx : text) (owed : row) : Prop :=
  [/\ forall y, 0 <= besides ctx owed y,
      forall t, t \in among -> mu t != 0 ->
        [/\ all (mem V) t, size (shares ctx owed t) = size t,
            all (fun a => 0 <= a) (shares ctx owed t) & \sum_(a <- shares ctx owed t) a <= 1]
    & forall f : T -> R,
        \sum_(t <- among) mu t * (\sum_(ax <- zip (shares ctx owed t) t) ax.1 * f ax.2)
        + \sum_(y <- V) besides ctx owed y * f y = \sum_(y <- V) owed y * f y].

(** Wherever the drafter can get, the plan is right, for anything that a node may owe there. *)
Fixpoint planned_for (j : joint) (ctx : text) : Prop :=
  match j with
  | Nothing => True
  | Tuple among mu below =>
      [/\ forall t, 0 <= mu t, \sum_(t <- among) mu t = 1, (forall t, t \in among -> t != [::]),
          (forall owed, (forall y, 0 <= owed y) -> mass V owed <= 1 -> plans among mu ctx owed)
        & forall t i x, t \in among -> x \in t -> planned_for (below t i x) (rcons ctx x)]
  end.

Lemma eq_expect_siblings below t i f g :
  (forall d, tuple_of d = t -> f d = g d) ->
  expect (siblings below t i) f = expect (siblings below t i) g.
Proof.
elim: t i f g => [|x t ih] i f g fg /=; first exact: fg.
rewrite !expect_bind; apply: eq_expect => child; rewrite !expect_bind; apply: ih => d dt /=.
by apply: fg; rewrite /= dt.
Qed.

Lemma expect_siblings_const below t i c :
  (forall k x, x \in t -> expect (below k x) (fun _ => c) = c) ->
  expect (siblings below t i) (fun _ => c) = c.
Proof.
elim: t i => [//|x t ih] i one /=; rewrite expect_bind -[RHS](one i x) ?mem_head //.
apply: eq_expect => child; rewrite expect_bind /= ih // => k y yt.
by apply: one; rewrite inE yt orbT.
Qed.

Lemma expect_joint_const j ctx c : planned_for j ctx -> expect (grow_joint j) (fun _ => c) = c.
Proof.
elim: j ctx c => [//|among mu below ih] ctx c /= [mu0 mu1 some _ h].
rewrite totalE -[RHS]mul1r -mu1 mulr_suml big_seq [RHS]big_seq; apply: eq_bigr => t tA.
by congr (_ * _); apply: expect_siblings_const => k x xt; apply: ih (h t k x tA xt).
Qed.

Hypothesis commit_ok : commits commit.
Hypothesis p_law : forall ctx, is_law V (p ctx).

(** The members of one tuple, tried in turn. *)
Lemma tries below t i ctx share unused last v z :
  (forall k x c, x \in t -> expect (below k x) (fun _ => c) = c) ->
  (forall k x z' w, x \in t -> 0 <= w <= 1 ->
    expect (below k x) (fun d =>
      expect (verify_planned d (rcons ctx x) (fun y => w * p (rcons ctx x) y))
             (worth v z' (rcons ctx x))) = (1 - w) * z' + w * v (rcons ctx x)) ->
  (forall y, 0 <= last y) ->
  size share = size t -> all (fun a => 0 <= a) share -> \sum_(a <- share) a <= unused ->
  unused * expect (siblings below t i) (fun d =>
    expect (planned d ctx share unused last) (worth v z ctx))
  = \sum_(ax <- zip share t) ax.1 * v (rcons ctx ax.2)
    + (unused - \sum_(a <- share) a)
      * ((1 - mass V last) * z + \sum_(y <- V) last y * v (rcons ctx y)).
Proof.
move=> one keeps last0.
elim: t i share unused one keeps => [|x t ih] i [|a share] unused one keeps //.
  move=> _ _ _; rewrite !big_nil subr0 add0r [siblings _ _ _]/= expect_ret [planned _ _ _ _ _]/=.
  by rewrite expect_here.
case=> same /andP[a0 share0]; rewrite !big_cons => le.
have rest0 : 0 <= \sum_(b <- share) b by rewrite big_seq sumr_ge0 // => b /(allP share0).
have au : a <= unused by apply: le_trans le; rewrite ler_addl.
pose En := expect (siblings below t i.+1) (fun d =>
  expect (planned d ctx share (unused - a) last) (worth v z ctx)).
transitivity (a * v (rcons ctx x) + (unused - a) * En); last first.
  rewrite /En ih //; first by rewrite addrA opprD addrA.
  - by move=> k y c yt; apply: one; rewrite inE yt orbT.
  - by move=> k y z' w yt; apply: keeps; rewrite inE yt orbT.
  - by rewrite ler_subr_addl.
have [u0|u0] := eqVneq unused 0.
  have a_0 : a = 0 by apply/eqP; rewrite eq_le a0 -u0 au.
  by rewrite u0 a_0 subr0 !mul0r addr0.
have u1 : 0 < unused by rewrite lt_neqAle eq_sym u0 (le_trans a0).
have -> : expect (siblings below (x :: t) i) (fun d =>
    expect (planned d ctx (a :: share) unused last) (worth v z ctx))
  = (1 - a / unused) * En + a / unused * v (rcons ctx x).
  transitivity (expect (below i x) (fun child =>
      expect (commit (fun w => verify_planned child (rcons ctx x) (fun y => w * p (rcons ctx x) y))
                     (a / unused))
             (worth v En (rcons ctx x)))).
    rewrite [siblings _ _ _]/= expect_bind; apply: eq_expect => child.
    rewrite expect_bind.
    under eq_expect => others do rewrite expect_ret [planned _ _ _ _ _]/= expect_bind.
    rewrite expect_swap; apply: eq_expect => -[out|] //=.
    rewrite cat_rcons; apply: expect_siblings_const => k y yt.
    by apply: one; rewrite inE yt orbT.
  apply: (commit_ok (F := worth v En (rcons ctx x))).
  - by move=> c; apply: one; exact: mem_head.
  - by move=> w w01; apply: keeps; rewrite ?mem_head.
  - by rewrite divr_ge0 ?(ltW u1) //= ler_pdivr_mulr // mul1r.
by rewrite mulrDr mulrA mulrBr mulr1 !mulrA [unused * a]mulrC mulfK // addrC.
Qed.

Theorem planned_9 j ctx owed v z :
  planned_for j ctx -> fair V p ctx v -> (forall y, 0 <= owed y) -> mass V owed <= 1 ->
  expect (grow_joint j) (fun d => expect (verify_planned d ctx owed) (worth v z ctx))
  = (1 - mass V owed) * z + \sum_(y <- V) owed y * v (rcons ctx y).
Proof.
elim: j ctx owed z => [|among mu below ih] ctx owed z.
  move=> _ fv owed0 owed1; rewrite [grow_joint _]/= expect_ret.
  by rewrite /verify_planned [planned _ _ _ _ _]/= expect_here.
move=> [mu0 mu1 some right h] fv owed0 owed1.
have [left0 members sums] := right owed owed0 owed1.
set rest := besides ctx owed in left0 sums.
pose Z := (1 - mass V (refused V owed rest)) * z
          + \sum_(y <- V) refused V owed rest y * v (rcons ctx y).
rewrite [grow_joint _]/= expect_draw.
transitivity (\sum_(t <- among)
    mu t * (\sum_(ax <- zip (shares ctx owed t) t) ax.1 * v (rcons ctx ax.2)
                + (1 - \sum_(a <- shares ctx owed t) a) * Z)).
  rewrite big_seq [RHS]big_seq; apply: eq_bigr => t tA.
  have [->|m0] := eqVneq (mu t) 0; first by rewrite !mul0r.
  have [tV same share0 share1] := members t tA m0; congr (_ * _).
  rewrite (@eq_expect_siblings _ t 0%N _ (fun d =>
    expect (planned d ctx (shares ctx owed t) 1 (refused V owed rest)) (worth v z ctx))).
    rewrite -[LHS]mul1r (tries _ _ (v := v)) //.
    - by move=> k x c xt; apply: expect_joint_const (h t k x tA xt).
    - move=> k x z' w xt /andP[w0 w1]; have [pl0 pl1] := p_law (rcons ctx x).
      have wE : mass V (fun y => w * p (rcons ctx x) y) = w.
        by rewrite massE -mulr_sumr -massE pl1 mulr1.
      rewrite (ih t k x (rcons ctx x)) ?wE //; [|exact: h|exact: fair_rcons|].
        rewrite (fair_at (fair_rcons x fv)); congr (_ + _); rewrite big_distrr.
        by apply: eq_bigr => y _; rewrite /= mulrA.
      by move=> y; rewrite mulr_ge0.
    - move=> y; rewrite /refused divr_ge0 // addr_ge0 ?subr_ge0 //; exact: mass_ge0.
  move=> d dt; rewrite /verify_planned dt /at_last -/rest.
  by case: (t) (some t tA).
have -> : \sum_(t <- among) mu t * (\sum_(ax <- zip (shares ctx owed t) t) ax.1 * v (rcons ctx ax.2)
                + (1 - \sum_(a <- shares ctx owed t) a) * Z)
  = (\sum_(y <- V) owed y * v (rcons ctx y) - \sum_(y <- V) rest y * v (rcons ctx y))
    + (mass V rest + (1 - mass V owed)) * Z.
  have used : \sum_(t <- among) mu t * (\sum_(a <- shares ctx owed t) a)
      = mass V owed - mass V rest.
    rewrite [mass V owed]massE [mass V rest]massE.
    have := sums (fun _ => 1); under [X in _ + X]eq_bigr do rewrite mulr1.
    under [X in _ = X -> _]eq_bigr do rewrite mulr1.
    move=> <-; rewrite addrK big_seq [RHS]big_seq; apply: eq_bigr => t tA.
    have [->|m0] := eqVneq (mu t) 0; first by rewrite !mul0r.
    have [_ same _ _] := members t tA m0; congr (_ * _).
    under [RHS]eq_bigr do rewrite mulr1.
    by rewrite -[in LHS](unzip1_zip (eq_leq same)) big_map.
  have -> : mass V rest + (1 - mass V owed)
      = \sum_(t <- among) (mu t - mu t * (\sum_(a <- shares ctx owed t) a)).
    by rewrite sumrB mu1 used opprB addrC addrAC addrA.
  rewrite -(sums (fun y => v (rcons ctx y))) addrK mulr_suml -big_split.
  by apply: eq_bigr => t _; rewrite /= mulrDr mulrA mulrBr mulr1.
by rewrite settles // addrCA subrK.
Qed.

End Planned.
