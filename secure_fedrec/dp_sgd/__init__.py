"""A client's local training with differential privacy for its single examples (DP-SGD).

Each step draws its batch by Poisson sampling, clips every example's gradient, sums, adds Gaussian
noise and hands the result to any torch optimiser (Abadi et al. 2016). Clipping is Opacus' ghost
clipping (Li, Tramer, Liang and Hashimoto 2022): per-example norms without per-example gradients,
which is what makes embedding tables bearable.

Two things differ from Opacus' own optimiser. Batches and noise come from AES-256-CTR keyed by the
operating system instead of torch's Mersenne twister. And the noise is added on a lattice: the
summed gradient is rounded to multiples of a step g, and integer noise from an exact table is added,
so no floating-point pattern of the result reveals the value under the noise. Rounding adds at most
sqrt(d) g to the sensitivity; g is chosen so that the noise covers clip plus that, and the guarantee
is the Gaussian mechanism's at the stated multiplier.

Opacus only sees calls of layers. Other uses of a layer's weight would enter the gradient unclipped,
so every step counts its uses in autograd's graph. If a weight has other uses, or a layer has no
formula, each example's gradient is computed by its own backward pass and clipped: slower, and
correct for any model.

Whether examples mix, and whether an example's gradient is the one whose norm is clipped, is tested
on the first batch that is not empty (the former on the first with two examples): a statistic of the
batch that has an effect only with an outlier, such as a cap at the largest value, is not detected.

Limits. The claim is about one example of one client (not about the client), against all who see
what the client sends after training. Norms and sums of gradients are computed by torch in floating
point: a margin of 2^-10 of the clip is set aside for their error, which covers float32 sums of
about 100 examples in the worst case and far more in practice; nothing is proved about the kernels
themselves, and convolutions on CUDA want ``torch.backends.cudnn.allow_tf32`` off. Time and memory
of the training are not hidden, nor whether it was refused.
"""

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings
from secure_fedrec.dp_sgd.clipping import ExampleLosses
from secure_fedrec.dp_sgd.lattice import LatticeNoise
from secure_fedrec.dp_sgd.training_loop import DpSgdConfig, train_privately

__all__ = ["DpSgdConfig", "ExampleLosses", "LatticeNoise", "train_privately"]
