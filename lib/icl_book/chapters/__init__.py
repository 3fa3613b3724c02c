"""Experiments of single chapters.

- `adaptation`: those of the chapters of Part I in the new form, a module each
- `attention_swap`: attentions of a language model compared (*From regression to language*)
- `coefficient_fit`: coefficients fitted to a few prompts (*Learning the method*)
- `distribution_shift`: a trained model adapted at test time (*When the distribution moves*)
- `importance_sampling`: risks that rare prompts decide (*More layers*)
- `key_gated_layers`: gated layers trained on a drift, against the bound for key gates (*What gating can buy*)
- `lm_init`: a language model's initialisation before its attention is replaced
- `rule_models`: tiny language models on a drifting rule, one memory each (*When text drifts*)
- `selection`: those of the chapters of Part III in the new form, a module each
- `selective_step`: exact risk of an S6 layer whose step depends on the token (*Why selection matters*)
- `synthesis`: those of the chapters of Part IV in the new form, a module each
- `text_finetuning`: language models fine-tuned and tested in context
"""
