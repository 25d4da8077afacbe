(** 3, 6. Chains, token by token: specref/rules/token.py.

    Any length; laws that depend on the context. The length may depend on what was drafted before,
    too: any plan of chains will do. *)

From mathcomp Require Import all_ssreflect ssralg ssrnum.
From specref Require Import Program Dist Draft Target Lemma Instance Rrs.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Token.
Variables (R : realFieldType) (T : eqType) (V : seq T).
Local Notation text := (seq T).
Variables p q : text -> T -> R.

Fixpoint token (d : draft T) (ctx : text) : program R text :=
  match d with
  | Last => one_token V (p ctx)
  | Child x below _ =>
      flip (Num.min 1 (p ctx x / q ctx x))
           (emit x (token below (rcons ctx x)))
           (one_token V (excess V (p ctx) (q ctx)))
  end.

(** On a chain it is recursive rejection. *)
Theorem token_is_rrs_6 d ctx f :
  is_chain d -> expect (token d ctx) f = expect (rrs_with V p q d ctx) f.
Proof.
elim: d ctx f => [//|x below ih [|//] _] ctx f cb.
by rewrite /rrs_with /rrs !expect_flip !expect_emit (ih (rcons ctx x)).
Qed.

Hypothesis p_law : forall ctx, is_law V (p ctx).
Hypothesis q_law : forall ctx, is_law V (q ctx).

Theorem token_lossless_3 pl ctx :
  chains pl -> truthful V (drawn_by q again) pl ctx [::] ->
  lossless V p ctx (bind (grow V pl) (token^~ ctx)).
Proof.
move=> cpl tr v fv; rewrite -[RHS](rrs_with_lossless_6 p_law tr fv) !expect_bind.
by apply: eq_expect_chains => // d _ cd; apply: token_is_rrs_6.
Qed.

Corollary token_drawn_3 gamma ctx :
  lossless V p ctx (bind (grow V (with_replacement q (nseq gamma 1%N) ctx)) (token^~ ctx)).
Proof.
by apply: token_lossless_3; [exact: with_replacement_chains | exact: with_replacement_truthful].
Qed.

(** The joint law of the emitted tokens, continued by the target, is the target's. *)
Corollary token_law_3 gamma n ctx :
  law (bind (bind (grow V (with_replacement q (nseq gamma 1%N) ctx)) (token^~ ctx))
            (complete V p n ctx))
  =1 law (target V p n ctx).
Proof. by apply: lossless_law_3 => //; apply: token_drawn_3. Qed.

End Token.
