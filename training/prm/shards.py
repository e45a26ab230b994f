"""All weights are trained by several processes: each keeps a shard of every weight, gradient and moment (FSDP2)."""

from torch import Tensor, bfloat16, float32, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel


def layers(model: PreTrainedModel) -> list[nn.Module]:
    """The decoder layers of a model: what its authors say has to stay together on a device."""
    return [module for module in model.modules() if type(module).__name__ in (model._no_split_modules or ())]


def shard(network: nn.Module, parts: list[nn.Module], mesh: DeviceMesh, bf16: bool) -> None:
    """Splits the network's weights among the processes of `mesh`, and moves them to its devices. A weight is whole only
    while its part computes, forward and backward; those of no part, all the time. Gradients become sums over the
    processes. `bf16`: gather the parts' weights in bfloat16; gradients are added up in fp32 all the same."""
    # the inputs stay in fp32, and autocast decides per operation, as for a single process
    policy = MixedPrecisionPolicy(bfloat16 if bf16 else None, float32, cast_forward_inputs=False)
    for part in parts:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    fully_shard(network, mesh=mesh)
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # else it is their mean
            module.set_force_sum_reduction_for_comms(True)  # Gloo has no other


def whole(tensor: Tensor) -> Tensor:
    """A tensor of the same shape without its shards; all processes have to call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
