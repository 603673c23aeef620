"""The story that `outlast demo` tells: its stage, its processes, its course and its proof."""
