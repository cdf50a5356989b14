"""What docs/torch_compile.md and README.md promise of torch.compile: for each sentence the tests
that hold it. A sentence that leaves its page, or a test that is renamed, fails here. Promises that
no other file holds are tested at the end."""

import ast
import os
import re
import warnings

import pytest
import torch
from torch import nn

import tandem
from compiled import compile_with

HERE = os.path.dirname(__file__)
ROOT = os.path.dirname(os.path.dirname(HERE))

# The beginning of the promise as its page has it, and names of tests, file by file.
PAGE = {
    "Inference and training, f32, f64, bf16, f16 and CPU autocast, dynamic sizes, checkpoint": {
        "dynamo": "inference_and_training dtypes dynamic_sizes_share_one_program "
        "selective_checkpoint checkpoint_draws_the_same_masks custom_function_keeps_its_backward",
        "autocast": "regions region_around_the_call",
        "optimizers": "steps",
    },
    "an unknown one is an error that lists these": {"dynamo": "unknown_options_are_listed"},
    "an operator that Tandem lacks runs in torch as a node of the same graph": {
        "dynamo": "missing_operator_is_named_or_runs_in_torch"
    },
    "a graph that cannot be compiled at all runs in torch as a whole": {
        "promises": "a_whole_graph_runs_in_torch_with_one_warning"
    },
    "raises, naming everything that is missing": {"promises": "error_names_everything_missing"},
    "as few bytes as possible": {"promises": "min_cut_saves_fewer_bytes"},
    "parameters and buffers that nothing writes are constants": {
        "dynamo": "frozen_weights_are_constants_until_somebody_writes_them "
        "frozen_buffers_that_the_graph_writes_stay_inputs "
        "a_frozen_buffer_that_shares_memory_with_a_written_one"
    },
    '`tandem.report()` has every kernel and decision of each graph, as `"kernels"`': {
        "promises": "the_report_has_kernels_where_it_is_asked"
    },
    "`mode` changes nothing here": {"promises": "mode_changes_nothing"},
    "`tandem.report()` is a dict that prints as a page": {
        "dynamo": "report_prints_and_is_a_dict"
    },
    "512 graphs compiled last in full": {"runs_in_torch": "the_report_is_bounded"},
    "says what results, saved activations and temporaries hold now": {
        "options": "the_report_says_how_much_memory_is_held"
    },
    "What was compiled is kept in `tandem-cache`, a private folder of `TANDEM_CACHE_DIR`": {
        "cache": "another_process_reads_it the_second_compile_is_the_first_one",
        "promises": "no_folder_no_cache",
    },
    "Everything that does is counted and named": {
        "runs_in_torch": "what_tells_a_size_is_counted_and_named "
        "calls_with_overlapping_inputs_are_counted_and_warned_of_once "
        "a_generator_of_the_callers_is_drawn_from_in_order "
        "a_generator_is_an_error_where_torch_may_not_run strict_refuses_what_tells_a_size "
        "strict_refuses_missing_operators_and_whole_graphs "
        "strict_refuses_calls_with_overlapping_inputs",
        "compiled_autograd": "what_is_not_compiled_is_counted_and_named",
    },
    "A mistake of Tandem's own is no refusal": {
        "runs_in_torch": "a_mistake_of_ours_is_no_refusal_of_torchs"
    },
    "At each call the weights that the module has *now*": {
        "frozen_weights": "a_weight_that_changed_is_noticed_at_the_next_call "
        "data_of_other_strides_is_noticed"
    },
    'unless by `freeze="checked"`': {
        "frozen_weights": "checked_notices_writes_that_nothing_counts"
    },
    "A call runs with the weights that it compared": {
        "frozen_weights": "a_call_runs_with_the_weights_that_it_compared "
        "modules_in_turn_run_setup_once_each a_set_goes_with_its_module "
        "the_number_of_sets_is_bounded",
        "threads": "ten_threads_over_three_models_while_one_of_them_changes "
        "weights_written_in_place_between_calls",
    },
    "Weights made in inference mode do not count writes": {
        "frozen_weights": "weights_made_in_inference_mode_are_arguments"
    },
    'options={"threads": 2}` is the size of the team': {
        "options": "the_option_and_set_threads_win calls_follow_the_number_of_torch "
        "threads_of_python_follow_too"
    },
    "Results have the same bits at any number of threads": {
        "promises": "the_same_bits_at_any_number_of_threads"
    },
    "Calls of several Python threads may overlap": {
        "process": "threads_share_a_compiled_model a_thread_compiles_while_others_run"
    },
    "Before the first call of each graph, eager and the program run on copies": {
        "options": "a_right_graph_is_verified_once_and_leaves_nothing_behind "
        "a_broken_graph_is_found a_broken_gradient_is_found"
    },
    "Graphs that draw random\nnumbers are not verified": {
        "options": "a_random_graph_is_not_verified_and_says_why"
    },
    "equal eager's within rounding; strides, aliasing": {
        "dynamo": "results_alias_as_in_eager layouts_of_results buffers_are_written_back"
    },
    "`torch.manual_seed` repeats a run": {
        "dynamo": "manual_seed_repeats_a_run checkpoint_draws_the_same_masks"
    },
    "**Several forwards may wait for their backward**": {
        "dynamo": "gradients_accumulate_over_forwards backward_twice_needs_retain_graph "
        "saved_input_that_is_written_is_noticed",
        "training_uses": "saved_activations_live_until_backward "
        "gradients_go_where_saved_activations_were",
    },
    "**Gradients of gradients**, of every order": {"dynamo": "double_backward"},
    "one program serves every size from 2 on": {
        "dynamo": "dynamic_sizes_share_one_program",
        "dynamic_compile": "recurrent_network_of_any_length functions_of_floats",
    },
    "**nn.LSTM, nn.GRU, nn.RNN** reach Tandem with nothing to set": {
        "dynamic_compile": "recurrent_networks_reach_the_backend",
        "promises": "allow_rnn_may_be_turned_off_again",
    },
    "**A training step in one graph.**": {"whole_step": "steps_of_gradient_descent"},
    "inputs that are more than elements in memory": {
        "bad_inputs": "inputs_that_are_refused",
        "dynamo": "what_cannot_be_compiled_is_refused_by_name",
    },
    "`tandem.UserError` is a ValueError and a RuntimeError": {
        "errors": "errors_are_value_errors",
        "promises": "errors_are_eagers_kinds",
        "process": "a_host_operator_that_raises",
    },
    "After an error every input and buffer is as it was": {
        "failing_calls": "inputs_of_a_failing_call",
        "process": "no_input_is_written_before_a_kernel_that_fails",
    },
    "**SIGINT** ends a compilation or a long call": {
        "signals": "a_key_press_ends_a_long_call a_key_press_ends_compilation"
    },
    "**fork.** In a child compiled programs run on one thread": {
        "process": "a_forked_child_computes a_forked_child_compiles "
        "forks_while_other_threads_run_and_compile"
    },
    "**DistributedDataParallel**": {"training_uses": "two_processes_train_one_model"},
    "**Loops and branches**": {
        "control_flow": "as_in_eager operator_that_tandem_lacks_in_a_body",
        "data_dependent": "branches_of_other_sizes",
    },
    "**Compiled autograd**": {
        "compiled_autograd": "backward_is_compiled_and_gradients_add_up hooks_are_called "
        "gradients_of_inputs_of_any_size a_function_of_the_users behind_a_compiled_forward "
        "frozen_options_do_not_freeze_what_backward_reads within_a_compiled_step"
    },
    "**Sizes that depend on data**": {
        "data_dependent": "parts_of_a_broken_graph one_graph any_count "
        "a_mask_written_to_is_one_program"
    },
    "**`t_`, `squeeze_` and their kin** work on what the graph made": {
        "shape_in_place": "as_in_eager an_inputs_own_shape"
    },
}
README = {
    "An\n  operator beyond them runs in torch, as a node of the same graph": {
        "dynamo": "missing_operator_is_named_or_runs_in_torch"
    },
    "The same bits at any number of threads on one machine": {
        "dynamic": "same_bits_at_any_number_of_threads",
        "promises": "the_same_bits_at_any_number_of_threads",
    },
    "Inference with frozen weights: constant work once": {
        "freeze": "conv_net_with_batch_norm mlp_with_weight_norm",
    },
    "a second process takes whole compiled functions from it": {
        "cache": "another_process_reads_it"
    },
}


def names_in(name):
    with open(os.path.join(HERE, f"test_{name}.py")) as file:
        tree = ast.parse(file.read())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", ["docs/torch_compile.md", "README.md"])
def test_each_promise_stands_on_its_page_and_has_its_tests(page):
    with open(os.path.join(ROOT, page)) as file:
        text = " ".join(file.read().split())
    for promise, files in (PAGE if page.startswith("docs") else README).items():
        assert " ".join(promise.split()) in text, promise
        for file, names in files.items():
            missing = {f"test_{name}" for name in names.split()} - names_in(file)
            assert not missing, f"{promise}: test_{file}.py has no {missing}"


def graphs():
    return tandem.report()["graphs"]


def test_a_whole_graph_runs_in_torch_with_one_warning():
    z = torch.tensor([1 + 2j, 3 - 1j]).conj()
    compiled = compile_with(lambda z: z * 2, on_unsupported="eager")
    with pytest.warns(UserWarning, match="a whole graph runs in torch.*conjugates") as caught:
        for _ in range(3):
            assert torch.equal(compiled(z), z * 2)
    assert len([each for each in caught if "tandem" in str(each.message)]) == 1
    assert "conjugates" in graphs()[0]["eager"] and graphs()[0]["fallbacks"] == {"whole graph": 1}


def test_error_names_everything_missing():
    def function(x):
        return torch.linalg.matrix_exp(x) + torch.linalg.pinv(x) + torch.linalg.inv(x)

    with pytest.raises(Exception) as caught:
        compile_with(function)(torch.eye(3))
    for name in ("linalg_matrix_exp", "pinv", "inv"):
        assert name in str(caught.value)


def test_min_cut_saves_fewer_bytes():
    def function(x, w):
        return (torch.tanh(x @ w).exp() * 2).sin().cos().sum()

    saved = {}
    for budget in ("default", "as_read", "min_cut"):
        x, w = torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)
        compiled = compile_with(function, memory_budget=budget)
        compiled(x, w).backward()
        before = tandem.memory_use()["live_bytes"]
        loss = compiled(x, w)
        saved[budget] = tandem.memory_use()["live_bytes"] - before
        expected = torch.autograd.grad(function(x, w), w)[0]
        torch.testing.assert_close(torch.autograd.grad(loss, w)[0], expected, rtol=1e-3, atol=1e-4)
    assert saved["min_cut"] < saved["as_read"]


def test_the_report_has_kernels_where_it_is_asked():
    for asked in (False, True):
        compile_with(lambda x: x.exp().sum(), report=asked)(torch.ones(3))
        assert ("kernel" in graphs()[0]["kernels"]) == asked


def test_mode_changes_nothing():
    text = []
    for mode in (None, "default", "reduce-overhead", "max-autotune"):
        torch._dynamo.reset()
        tandem.reset_report()
        torch.compile(lambda x: x.exp().sum(), backend=tandem.backend, mode=mode)(torch.ones(3))
        text.append(graphs()[0]["text"])
    assert len(set(text)) == 1


def test_no_folder_no_cache(monkeypatch):
    monkeypatch.setenv("TANDEM_CACHE_DIR", "")
    for _ in range(2):
        compile_with(lambda x: x.exp() * 3.25)(torch.ones(3))
        assert not graphs()[0]["from cache"]


def test_the_same_bits_at_any_number_of_threads():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 700), nn.GELU(), nn.LayerNorm(700), nn.Linear(700, 50))
    x = torch.randn(200, 300)
    results = []
    for threads in (1, 2, 3, 8):
        loss = compile_with(model, threads=threads)(x).square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        results.append([loss.detach(), *gradients])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_allow_rnn_may_be_turned_off_again():
    from torch._dynamo import config

    layers = nn.LSTM(3, 4)
    assert config.allow_rnn, "tandem.backend was named"
    with config.patch(allow_rnn=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile_with(layers)(torch.ones(2, 1, 3))
    assert not any("lstm" in name for graph in graphs() for name in graph["ops"])


def test_errors_are_eagers_kinds():
    assert issubclass(tandem.UserError, ValueError) and issubclass(tandem.UserError, RuntimeError)
    assert issubclass(tandem.DataError, IndexError)
    compiled = compile_with(lambda x, i: x[i] * 2)
    with pytest.raises(IndexError, match="index"):
        compiled(torch.ones(3), torch.tensor([7]))


def test_names_that_the_page_uses_are_public():
    with open(os.path.join(ROOT, "docs", "torch_compile.md")) as file:
        named = set(re.findall(r"`(?:raises )?tandem\.(\w+)", file.read()))
    assert named >= {"report", "memory_use", "set_threads"} and named <= set(tandem.__all__)
