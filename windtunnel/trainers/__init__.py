"""Fine-tuning: recipes, loaders, optimizers, the Lightning modules, the residual model, and ``finetune`` over them."""
