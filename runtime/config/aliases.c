/* SPDX-License-Identifier: MIT
 *
 * Names of transformers' TrainingArguments and configurations, PEFT, Axolotl, LLaMA-Factory, nanoGPT, llm.c, Megatron,
 * DeepSpeed and Avalanche, next to the keys and words that they stand for here.
 */
#include "runtime/config/aliases.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

const HsAlias hs_config_key_aliases[] = {
    { NULL, "max_epochs", "num_train_epochs num_epochs n_epochs epochs epoch total_epochs train_epochs" },
    { NULL, "max_steps",
      "max_train_steps total_steps max_iters num_steps train_steps num_iterations iterations iters n_steps "
      "steps num_training_steps train_iters max_iterations" },
    { NULL, "batch_size",
      "per_device_train_batch_size per_device_eval_batch_size micro_batch_size train_batch_size eval_batch_size "
      "device_batch_size per_gpu_train_batch_size batchsize mini_batch_size bs global_batch_size "
      "train_micro_batch_size_per_gpu" },
    { NULL, "gradient_accumulation_steps",
      "gradient_accumulation grad_accum grad_accum_steps grad_accumulation_steps accumulate_grad_batches "
      "accumulation_steps accumulation" },
    { NULL, "max_length",
      "block_size context_length context_window context_len context_size seq_len seq_length sequence_length "
      "sequence_len max_seq_length max_seq_len max_sequence_length model_max_length cutoff_len n_ctx ctx_len "
      "max_len max_source_length" },
    { NULL, "learning_rate", "lr base_lr max_lr peak_lr initial_lr learningrate step_size" },
    { NULL, "weight_decay", "wd l2_regularization decoupled_weight_decay" },
    { NULL, "schedule.min_learning_rate", "min_lr lr_min final_lr end_lr eta_min min_lr_rate" },
    { NULL, "schedule.warmup_steps",
      "warmup warmup_iters num_warmup_steps lr_warmup_steps lr_warmup_iters warmup_ratio warmup_fraction "
      "warmup_num_steps warmup_epochs" },
    { NULL, "schedule.kind",
      "lr_scheduler_type lr_scheduler lr_schedule scheduler scheduler_type lr_decay_style decay_lr lr_decay" },
    { NULL, "schedule.decay_steps", "lr_decay_iters lr_decay_steps decay_iters num_decay_steps t_max" },
    { NULL, "optimizer.kind", "optim optimizer_type optimizer_name optim_type" },
    { NULL, "optimizer.betas", "adam_beta1 adam_beta2 beta1 beta2 adam_betas" },
    { NULL, "optimizer.epsilon", "adam_epsilon adam_eps eps" },
    { NULL, "optimizer.clip_norm",
      "max_grad_norm grad_clip clip_grad clip_grad_norm gradient_clipping gradient_clip gradient_clip_val "
      "grad_norm_clip max_norm clip" },
    { NULL, "optimizer.kind: adamw8bit", "use_8bit_adam adam8bit use_8bit_optimizer" },
    { NULL, "precision.mode: fp16", "fp16 use_fp16 half float16" },
    { NULL, "precision.mode: bf16", "bf16 use_bf16 bfloat16" },
    { NULL, "precision.mode: tf32", "tf32 allow_tf32" },
    { NULL, "precision.mode: fp8", "fp8 use_fp8" },
    { NULL, "precision.mode: fp32", "fp32 full_precision float32" },
    { NULL, "precision.mode",
      "dtype torch_dtype mixed_precision amp_dtype data_type compute_dtype fp16_opt_level precision_mode" },
    { NULL, "use_amp", "amp autocast use_mixed_precision" },
    { NULL, "precision.init_scale", "initial_scale initial_loss_scale fp16_init_scale initial_scale_power" },
    { NULL, "precision.growth_interval", "loss_scale_window scale_window" },
    { NULL, "use_gradient_checkpointing",
      "gradient_checkpointing grad_checkpointing activation_checkpointing use_checkpoint use_checkpointing "
      "recompute_activations" },
    { NULL, "model.layers", "n_layer n_layers num_layers num_hidden_layers num_blocks n_blocks depth" },
    { NULL, "model.heads", "n_head n_heads num_heads num_attention_heads" },
    { NULL, "model.kv_heads", "n_kv_head n_kv_heads num_key_value_heads num_kv_heads n_head_kv num_query_groups" },
    { NULL, "model.width",
      "n_embd n_embed d_model hidden_size embed_dim embedding_dim embedding_size n_embedding model_dim dim "
      "channels" },
    { NULL, "model.head_dim", "head_size d_head attention_head_dim" },
    { NULL, "model.mlp_width",
      "intermediate_size ffn_dim ffn_hidden_size d_ff n_inner hidden_dim mlp_dim feed_forward_size" },
    { NULL, "model.vocabulary", "vocab_size vocabulary_size padded_vocab_size n_vocab" },
    { NULL, "model.max_positions", "n_positions max_position_embeddings" },
    { NULL, "model.norm_epsilon", "rms_norm_eps layer_norm_epsilon layer_norm_eps layernorm_epsilon norm_eps" },
    { NULL, "model.tie_head", "tie_word_embeddings tie_embeddings tied_embeddings weight_tying tie_weights" },
    { NULL, "model.rope_theta", "rope_base rotary_base rope_freq_base" },
    { NULL, "model.init_std", "initializer_range init_method_std" },
    { NULL, "model.qkv_bias", "attention_bias add_qkv_bias" },
    { NULL, "model.dropout", "attn_pdrop resid_pdrop embd_pdrop attention_dropout hidden_dropout dropout_rate" },
    { NULL, "model.family", "model_type arch architecture architectures" },
    { NULL, "model.z_loss", "z_loss_weight z_loss_coef z_loss_multiplier" },
    { NULL, "out_dir",
      "output_dir save_dir outdir run_dir work_dir output_path output checkpoint_dir logging_dir log_dir" },
    { NULL, "checkpoint_freq",
      "save_steps save_interval save_every save_freq checkpoint_every checkpoint_interval checkpoint_steps "
      "save_strategy always_save_checkpoint" },
    { NULL, "keep_checkpoints", "save_total_limit max_checkpoints keep_last num_checkpoints" },
    { NULL, "keep_best", "load_best_model_at_end save_best best_checkpoint" },
    { NULL, "resume", "resume_from_checkpoint resume_from auto_resume resume_training" },
    { NULL, "evaluation.every",
      "eval_steps eval_interval eval_every eval_freq eval_strategy evaluation_strategy evaluation_steps "
      "val_loss_every val_check_interval validation_interval val_interval eval_step" },
    { NULL, "evaluation.batches", "eval_iters eval_batches max_eval_batches limit_val_batches val_max_steps" },
    { NULL, "logging.every", "logging_steps log_interval log_every log_freq log_steps log_every_n_steps print_every" },
    { NULL, "logging.tensorboard", "report_to use_tensorboard" },
    { NULL, "logging.progress", "disable_tqdm progress_bar" },
    { NULL, "early_stop.patience", "early_stopping_patience patience_steps" },
    { NULL, "early_stop.min_delta", "early_stopping_threshold early_stopping_delta" },
    { NULL, "init_from",
      "model_name_or_path base_model model_name pretrained_model_name_or_path pretrained pretrained_model "
      "model_id model_path load_from base_model_name_or_path from_pretrained" },
    { NULL, "tokenizer.path",
      "tokenizer_name tokenizer_path tokenizer_name_or_path tokenizer_file vocab_file tokenizer_model" },
    { NULL, "tokenizer.kind", "tokenizer_type" },
    { NULL, "tokenizer.end_of_text", "eos_token eot_token" },
    { NULL, "tasks.0.train",
      "train_file train_files train_data train_path data_path dataset datasets dataset_name dataset_path "
      "data_dir data_files input_bin train_bin train_dataset corpus training_data" },
    { NULL, "tasks.0.validation",
      "valid_file validation_file val_file val_files val_data eval_dataset eval_file valid_data input_val_bin "
      "val_bin validation_split val_split val_set_size test_size validation_data test_file" },
    { NULL, "tasks.0.text_field", "text_column dataset_text_field text_key text_column_name" },
    { NULL, "tasks.0.prompt_field", "prompt_column prompt_key instruction_field" },
    { NULL, "tasks.0.completion_field",
      "completion_column response_field response_column output_field response_key answer_field" },
    { NULL, "tasks.0.format", "dataset_format data_format" },
    { NULL, "data.packing", "sample_packing pack_sequences pack multipack_attn" },
    { NULL, "data.workers", "dataloader_num_workers num_workers num_data_workers" },
    { NULL, "data.prefetch", "prefetch_factor dataloader_prefetch_factor" },
    { NULL, "data.sampling", "shuffle shuffle_data sampler" },
    { NULL, "data.group_by_length", "group_by_length length_grouped" },
    { NULL, "adapter", "lora peft lora_config peft_config" },
    { NULL, "adapter.kind: lora", "use_lora use_peft peft_type peft_method" },
    { NULL, "adapter.rank", "lora_r lora_rank lora_dim r" },
    { NULL, "adapter.alpha", "lora_alpha lora_scaling" },
    { NULL, "adapter.dropout", "lora_dropout" },
    { NULL, "adapter.targets", "lora_target_modules target_modules lora_targets lora_target lora_modules" },
    { NULL, "adapter.also_train", "modules_to_save lora_modules_to_save additional_target" },
    { NULL, "adapter.rank_stabilized", "use_rslora rslora" },
    { NULL, "adapter.base: nf4", "load_in_4bit use_4bit qlora bnb_4bit_quant_type quantization_bit" },
    { NULL, "adapter.init_from", "adapter_name_or_path lora_model_dir lora_path adapter_path lora_weights" },
    { NULL, "train.size", "size model_size num_parameters n_params num_params" },
    { NULL, "train.freeze", "freeze_layers frozen_layers freeze_modules frozen_parameters" },
    { NULL, "distributed.processes", "world_size nproc_per_node num_processes n_gpus num_gpus gpus n_gpu" },
    { NULL, "distributed.zero", "zero_stage zero_optimization deepspeed fsdp" },
    { NULL, "distributed.address", "master_addr master_port main_process_port rdzv_endpoint" },
    { NULL, "distributed.transport", "ddp_backend dist_backend" },
    { NULL, "distributed.timeout", "ddp_timeout" },
    { NULL, "device: cpu", "use_cpu no_cuda" },
    { NULL, "threads", "n_threads num_threads omp_num_threads" },
    { NULL, "seed", "random_seed manual_seed data_seed" },
    { NULL, "memory.offload", "cpu_offload offload_optimizer optimizer_offload offload_to_cpu" },
    { NULL, "memory.limit", "max_memory gpu_memory gpu_memory_limit" },
    { NULL, "continual.strategy", "cl_strategy cl_method cl_algorithm continual_strategy" },
    { NULL, "replay.buffer_size", "mem_size memory_size replay_buffer_size replay_size rehearsal_size" },
    { NULL, "replay.fraction", "replay_ratio replay_fraction replay_rate" },
    { NULL, "ewc.lambda", "ewc_lambda lambda_ewc reg_lambda ewc_importance" },
    { NULL, "si.strength", "si_c si_lambda" },
    { NULL, "lwf.alpha", "lwf_lambda lwf_alpha" },
    { NULL, "lwf.temperature", "lwf_temperature distillation_temperature" },
    { NULL, "der.alpha", "der_alpha" },
    { NULL, "der.beta", "der_beta" },
    { NULL, "mer.beta", "mer_beta" },
    { NULL, "mer.gamma", "mer_gamma" },
    { 0 },
};

const HsAlias hs_config_choice_aliases[] = {
    { "continual.strategy", "der++", "der derpp der_plus_plus dark_experience_replay dark_replay" },
    { "continual.strategy", "er", "replay experience_replay rehearsal naive_replay replay_buffer reservoir" },
    { "continual.strategy", "a-gem", "agem a_gem gem averaged_gem" },
    { "continual.strategy", "si", "synaptic_intelligence path_integral" },
    { "continual.strategy", "ewc", "online_ewc ewc_online ewc++ elastic_weight_consolidation oewc" },
    { "continual.strategy", "lwf", "learning_without_forgetting distillation" },
    { "continual.strategy", "none", "naive finetune fine_tune fine_tuning finetuning sequential sgd" },
    { "continual.strategy", "joint",
      "multitask multi_task multitask_learning cumulative offline joint_training upper_bound" },
    { "continual.strategy", "mer", "meta_experience_replay reptile" },
    { "continual.strategy", "generative", "generative_replay lamol dgr pseudo_rehearsal" },
    { "continual.strategy", "l2", "l2_sp l2sp l2_init l2_regularization" },
    { "continual.strategy", "inc-lora", "inclora inc_lora incremental_lora" },
    { "continual.strategy", "o-lora", "olora o_lora orthogonal_lora" },
    { "optimizer.kind", "adamw8bit",
      "adamw_8bit adamw_bnb_8bit adam8bit adam_8bit paged_adamw_8bit paged_adamw8bit bnb_adamw8bit adamw8b" },
    { "optimizer.kind", "adamw",
      "adam adamw_torch adamw_torch_fused adamw_hf adamw_fused adamw_apex_fused fused_adam fusedadam "
      "paged_adamw paged_adamw_32bit adamw_32bit torch_adamw" },
    { "optimizer.kind", "adamwfp8", "adamw_fp8 adamw_torch_8bit_fp8 fp8_adamw" },
    { "optimizer.kind", "sgd", "momentum sgd_momentum nesterov" },
    { "optimizer.kind", "schedule-free",
      "schedulefree schedule_free adamw_schedule_free adamw_schedulefree schedule_free_adamw schedulefree_adamw "
      "adamwschedulefree" },
    { "optimizer.kind", "muon", "moonlight muon_hybrid muon_adamw" },
    { "optimizer.kind", "apollo", "apollo_adamw apollo_adamw_layerwise galore_adamw galore q_apollo" },
    { "optimizer.kind", "apollo with apollo.rank 1 and apollo.granularity tensor",
      "apollo_mini apollo-mini mini_apollo" },
    { "optimizer.groups.kind", "adamw8bit", "adamw_8bit adam8bit paged_adamw_8bit" },
    { "optimizer.groups.kind", "adamw", "adam adamw_torch" },
    { "optimizer.groups.kind", "schedule-free", "schedulefree schedule_free adamw_schedule_free" },
    { "schedule.kind", "cosine",
      "cosine_with_warmup cosine_annealing cosine_with_min_lr cosine_decay warmup_cosine cosine_with_restarts "
      "cosineannealinglr" },
    { "schedule.kind", "linear", "linear_with_warmup linear_decay warmup_linear polynomial" },
    { "schedule.kind", "constant", "constant_with_warmup none flat fixed warmup_constant" },
    { "schedule.kind", "wsd", "warmup_stable_decay trapezoid trapezoidal stable_decay" },
    { "precision.mode", "fp16", "float16 half 16_mixed fp16_mixed amp f16 16 o1" },
    { "precision.mode", "bf16", "bfloat16 bf16_mixed bf16_true bfloat" },
    { "precision.mode", "fp32", "float32 float full single 32 32_true f32 no none fp32_mixed" },
    { "precision.mode", "tf32", "tensorfloat32 tfloat32" },
    { "precision.mode", "fp8", "e4m3 e5m2 float8 float8_e4m3fn float8_e5m2 fp8_hybrid transformer_engine" },
    { "precision.mode", "fp8 with precision.fp8.recipe mxfp8", "mxfp8" },
    { "precision.mode", "fp8 with precision.fp8.recipe nvfp4", "nvfp4 fp4 e2m1" },
    { "precision.fp8.recipe", "current", "tensorwise per_tensor dynamic current_scaling" },
    { "precision.fp8.recipe", "delayed", "delayed_scaling" },
    { "precision.fp8.recipe", "block", "blockwise deepseek float8_blockwise" },
    { "precision.fp8.recipe", "mxfp8", "mx" },
    { "precision.fp8.recipe", "nvfp4", "fp4" },
    { "device", "cuda", "gpu nvidia" },
    { "device", "cpu", "host mps" },
    { "model.family", "gpt2", "gpt gpt_2 gpt2lmheadmodel" },
    { "model.family", "llama", "llama2 llama3 mistral qwen qwen2 qwen3 llamaforcausallm smollm tinyllama" },
    { "tokenizer.kind", "bpe", "tiktoken gpt2 sentencepiece huggingface hf unigram auto" },
    { "tokenizer.kind", "char", "character characters" },
    { "tokenizer.kind", "byte", "bytes utf8 utf_8" },
    { "data.packing", "stream", "true packed concat concatenate" },
    { "data.packing", "documents", "document bfd best_fit multipack" },
    { "data.packing", "none", "false padding pad padded" },
    { "data.sampling", "epoch", "shuffle shuffled sequential" },
    { "adapter.kind", "lora with adapter.base nf4", "qlora" },
    { "adapter.base", "nf4", "4bit int4 nf_4 fp4 bnb qlora load_in_4bit bitsandbytes" },
    { "adapter.base", "unchanged", "none bf16 fp16" },
    { "memory.recompute", "block", "true full all blocks" },
    { "memory.recompute", "attention", "selective" },
    { "memory.recompute", "none", "false off" },
    { "memory.offload", "optimizer", "cpu true zero_offload" },
    { "memory.offload", "none", "false off" },
    { "resume", "auto", "true allow yes latest" },
    { "resume", "never", "false no none" },
    { "resume", "require", "must" },
    { "logging.progress", "bar", "tqdm true" },
    { "logging.progress", "none", "false off silent quiet" },
    { "distributed.launch", "torchrun", "pytorch elastic torch accelerate" },
    { "distributed.launch", "slurm", "srun" },
    { "distributed.launch", "mpi", "mpirun openmpi mpiexec" },
    { "distributed.transport", "auto", "nccl" },
    { "distributed.transport", "tcp", "gloo socket" },
    { "distributed.transport", "shared", "shm shared_memory" },
    { "tokenizer.chat_template", "llama3", "llama_3" },
    { "tokenizer.chat_template", "llama3.1", "llama_3.1 llama31 llama3_1 llama3.2" },
    { "tokenizer.chat_template", "chatml", "chat_ml qwen3 im_start" },
    { "tokenizer.chat_template", "qwen2.5", "qwen25 qwen2_5 qwen_2.5 qwen" },
    { "tokenizer.chat_template", "gemma", "gemma3 gemma_3 gemma3n" },
    { "tokenizer.chat_template", "gemma2", "gemma1 gemma_2" },
    { "tokenizer.chat_template", "smollm3", "smollm smollm_3" },
    { "tokenizer.chat_template", "phi3", "phi phi_3" },
    { "tokenizer.chat_template", "phi3.5", "phi35 phi_3.5" },
    { "tokenizer.chat_template", "phi4-mini", "phi4 phi_4_mini phi4_mini" },
    { "tokenizer.chat_template", "granite", "granite3 granite3.1 granite3.2 granite3.3" },
    { "tokenizer.chat_template", "mistral-v3", "mistral mistral7b mistral_v3" },
    { "tokenizer.chat_template", "mistral-nemo", "nemo mistral_v3_tekken" },
    { "tokenizer.chat_template", "mistral-v7-tekken", "mistral_v7 mistral_small" },
    { "continual.boundaries", "tasks", "task known" },
    { "commands", "generate", "chat sample complete infer inference predict" },
    { "commands", "eval", "evaluate test validate perplexity" },
    { "commands", "export", "convert save merge" },
    { "commands", "train", "fit finetune fine_tune pretrain sft run" },
    { "commands", "tokenizer", "tokenize encode decode" },
    { "commands", "bench", "benchmark" },
    { "commands", "report", "plot" },
    { "options", "checkpoint", "model model_path model_name_or_path ckpt load out_dir resume pretrained" },
    { "options", "tokens", "max_new_tokens max_tokens n_predict num_tokens length" },
    { "options", "samples", "num_samples num_return_sequences n" },
    { "options", "prompt", "start text input" },
    { "options", "prompt-file", "input_file file" },
    { "options", "output", "out output_dir save outfile out_dir" },
    { "options", "out", "output output_dir out_dir" },
    { "options", "config", "config_file yaml cfg" },
    { "options", "vocabulary", "vocab_size vocab" },
    { "options", "special", "special_tokens" },
    { "options", "file", "data dataset input eval_file" },
    { "options", "processes", "nproc_per_node num_processes nproc np" },
    { "options", "restart", "max_restarts" },
    { "options", "dtype", "outtype torch_dtype precision" },
    { "options", "run", "out_dir dir" },
    { "*", "f32", "fp32 float32 float" },
    { "*", "fp32", "f32 float32 float" },
    { "*", "bf16", "bfloat16" },
    { "*", "true", "yes on 1 always" },
    { "*", "false", "no off 0 never" },
    { "*", "none", "off false disabled no null" },
    { "*", "auto", "default automatic" },
    { 0 },
};

static char plain(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

/* Whether the words of `list` have this one. */
static bool has_word(const char *list, const char *word)
{
    for (const char *at = list; *at;) {
        const size_t length = strcspn(at, " ");
        size_t same = 0;
        while (same < length && word[same] && plain(word[same]) == at[same])
            same++;
        if (same == length && word[same] == '\0')
            return true;
        at += length + (at[length] == ' ');
    }
    return false;
}

static const char *find_key(const char *word)
{
    for (const HsAlias *row = hs_config_key_aliases; row->meant; row++)
        if (has_word(row->words, word))
            return row->meant;
    return NULL;
}

const char *hs_config_alias_key(const char *unknown)
{
    const char *const dot = strrchr(unknown, '.'), *const whole = find_key(unknown);
    return whole || !dot ? whole : find_key(dot + 1);
}

/* The first word of a phrase is the choice. */
static bool is_among(const char *choices, const char *meant)
{
    const size_t wanted = strcspn(meant, " ");
    for (const char *word = choices; *word;) {
        const size_t length = strcspn(word, "|");
        if (length == wanted && strncmp(word, meant, length) == 0)
            return true;
        word += length + (word[length] == '|');
    }
    return false;
}

const char *hs_config_alias_choice(const char *key, const char *choices, const char *word)
{
    for (const HsAlias *row = hs_config_choice_aliases; row->meant; row++)
        if ((strcmp(row->key, key) == 0 || strcmp(row->key, "*") == 0) && is_among(choices, row->meant) &&
            has_word(row->words, word))
            return row->meant;
    return NULL;
}
