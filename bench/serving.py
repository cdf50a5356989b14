"""Serving runtimes as contenders, from one ONNX model. Inputs and results stay where they are: no
copies."""

import measure
import model_cases
import torch


class Plain(torch.nn.Module):
    """A tensor in, a tensor out."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, value):
        return model_cases.first_tensor(self.model(value))


def onnx_file(model, example, folder, **options):
    path = f"{folder}/model.onnx"
    torch.onnx.export(
        Plain(model).eval(), (example,), path, dynamo=True, verbose=False, **options
    )
    return path


def onnx_runtime(path, example):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = measure.THREADS
    # Its threads spin for some 50 ms after a run, at the cost of whoever's turn is next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(path, options)
    bound = session.io_binding()
    bound.bind_cpu_input(session.get_inputs()[0].name, example.numpy())
    bound.bind_output(session.get_outputs()[0].name)

    def step():
        session.run_with_iobinding(bound)
        return torch.from_numpy(bound.get_outputs()[0].numpy())

    return step


def openvino(path, example):
    import openvino as ov

    settings = {"INFERENCE_NUM_THREADS": measure.THREADS, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = ov.Core().compile_model(ov.convert_model(path), "CPU", settings)
    array = example.numpy()
    return lambda: torch.from_numpy(
        compiled([array], share_inputs=True, share_outputs=True)[compiled.output(0)]
    )
