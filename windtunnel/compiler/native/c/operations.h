/* The operations of a native program, one per line. Their order numbers them: Python reads this list too. */
WT_OPERATION(affine)
WT_OPERATION(linear)
WT_OPERATION(category_table)
WT_OPERATION(trees)
WT_OPERATION(leaf_one_hot)
WT_OPERATION(linear_leaves)
