#!/usr/bin/env bash
# The wheel, in a folder of its own: torch finds the backend by its entry point.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

scripts/wheel.sh
site="$PWD/build/wheel-site"
rm -rf "$site"
"$TANDEM_VENV/bin/pip" install -q --disable-pip-version-check --no-deps --no-index \
  --target "$site" build/dist/tandem-*.whl
cd /  # nothing of the source tree is on the path
PYTHONPATH="$site" "$TANDEM_VENV/bin/python" - <<'PYTHON'
import torch

assert "tandem" in torch._dynamo.list_backends(), torch._dynamo.list_backends()
options = {"on_unsupported": "error"}
compiled = torch.compile(lambda x: (x * 2).sin(), backend="tandem", options=options)
x = torch.randn(8, requires_grad=True)
compiled(x).sum().backward()
torch.testing.assert_close(x.grad, 2 * (x * 2).cos().detach())
PYTHON
say "torch finds the backend \"tandem\""
