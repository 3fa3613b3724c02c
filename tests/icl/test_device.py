"""Numbers that are kept for a loop: copied once a device and dtype, never older than what they are copies of."""

import numpy as np
import torch
from elsewhere import THERE, Elsewhere, Watch

from icl import filters
from icl._device import DeviceCache
from icl.profile import make_generator


def test_a_device_and_a_dtype_have_a_copy_each():
    """The same tensor again for the same asker's kind, another for another dtype or device, of the right numbers."""
    kept = DeviceCache(np.array([0.1, 0.2]))
    near, wide = torch.zeros(3), torch.zeros(3, dtype=torch.float64)
    assert kept.shape == (2,)
    assert kept.to(near) is kept.to(near)
    assert kept.to(near).dtype == torch.float32
    assert kept.to(wide).tolist() == [0.1, 0.2]
    with Watch() as watch:
        far = near.to(THERE)
        watch.copies.clear()
        assert isinstance(kept.to(far), Elsewhere)
        assert kept.to(far).tolist() == kept.to(near).tolist()
        assert kept.to(near).device.type == "cpu"
        assert len(watch.copies) == 2  # there once, and back to be looked at


def test_numbers_changed_in_place_are_copied_anew():
    """A step size that its owner changes between two runs of the same filter is the new one in the second."""
    mu = torch.tensor([[0.1], [0.2]], dtype=torch.float64)
    one = filters.lms(mu)
    x, y = torch.randn(2, 4, 6, 3, generator=make_generator("kept")).unbind(0)
    before = filters.run_filter(one, x, y[..., 0])
    mu.mul_(2)
    assert torch.equal(filters.run_filter(one, x, y[..., 0]), filters.run_filter(filters.lms(mu), x, y[..., 0]))
    assert not torch.equal(filters.run_filter(one, x, y[..., 0]), before)


def test_a_gradient_goes_through_each_time():
    """Numbers that wait for a gradient are copied at each call: two backward passes, in float32, add up."""
    numbers = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    kept = DeviceCache(numbers)
    for _ in range(2):
        (kept.to(torch.zeros(1)) * 3).backward()
    assert numbers.grad.item() == 6


def test_a_copy_of_a_transformation_is_not_kept():
    """What was copied in inference mode, or under a gradient of torch.func, does not come back in a training step."""
    kept, like = DeviceCache(np.array(0.5)), torch.zeros(1)
    with torch.inference_mode():
        assert kept.to(like).is_inference()
    slope = torch.func.grad(lambda w: (kept.to(like) * w).square().sum())
    assert slope(torch.tensor(2.0)).item() == 1
    leaf = torch.tensor(2.0, requires_grad=True)
    (kept.to(like) * leaf).square().sum().backward()
    assert leaf.grad.item() == 1


def test_numbers_of_inference_mode_are_taken():
    """They have no count of changes, and none is needed."""
    with torch.inference_mode():
        kept = DeviceCache(torch.tensor([0.25]))
    assert kept.to(torch.zeros(1, dtype=torch.float64)).tolist() == [0.25]
