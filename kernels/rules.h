/* SPDX-License-Identifier: MIT
 *
 * rules.h: how one parameter of a network moves in an optimizer's step, for host and device, so
 * that both give the same bits. All is computed in float32, and nothing is contracted (-fmad=false,
 * -ffp-contract=off).
 */
#ifndef KO_RULES_H
#define KO_RULES_H

#include "portable.h"

#include <math.h>

/* What a step is the same in for all parameters. Travels to the device as it is. */
struct ko_rule {
    uint32_t is_first, is_nesterov, is_decoupled;
    float factor; /* of the gradient */
    float rate, decay;
    float momentum, dampening;
    float beta1, beta2, epsilon;
    float bias1, bias2_root; /* 1 - beta1^t, sqrt(1 - beta2^t), of the t-th step */
    uint32_t unused;
};

/* Stochastic gradient descent, g being the gradient and p the parameter: g += decay p; s = momentum
 * s + (1 - dampening) g, at first g; p -= rate s, if is_nesterov rate (g + momentum s). Without
 * momentum there is no state and p -= rate g. Returns the new p. */
KO_FN float ko_sgd_move(const struct ko_rule *rule, float p, float g, float *s)
{
    float moved;

    g += rule->decay * p;
    moved = rule->is_first ? g : rule->momentum * *s + (1 - rule->dampening) * g;
    *s = moved;
    moved = rule->is_nesterov ? g + rule->momentum * moved : moved;
    return p - rule->rate * (rule->momentum == 0 ? g : moved);
}

/* Adam (Kingma and Ba, 2015): g += decay p, if is_decoupled (AdamW) p -= rate decay p instead;
 * s = beta1 s + (1 - beta1) g; v = beta2 v + (1 - beta2) g g; p -= rate / bias1 (s / (sqrt(v) /
 * bias2_root + epsilon)); at first both states are 0, whatever they are. */
KO_FN float ko_adam_move(const struct ko_rule *rule, float p, float g, float *s, float *v)
{
    const float first = rule->is_first ? 0 : *s, second = rule->is_first ? 0 : *v;

    if (rule->is_decoupled)
        p -= rule->rate * rule->decay * p;
    else
        g += rule->decay * p;
    *s = rule->beta1 * first + (1 - rule->beta1) * g;
    *v = rule->beta2 * second + (1 - rule->beta2) * (g * g);
    return p - rule->rate / rule->bias1 * (*s / (sqrtf(*v) / rule->bias2_root + rule->epsilon));
}

#endif
