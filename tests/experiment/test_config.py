import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.experiment.config import Config, PipelineConfig
from windtunnel.experiment.parts import load_parts
from windtunnel.experiment.steps import (
    StepConfig,
    estimator_class,
    estimators,
    required_options,
)

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
MINIMAL = "data: {train: rows.csv, target: y}\npipeline: {model: {LogisticRegression: {C: 2}}}\n"


def read(folder: Path, text: str, **overrides: object) -> Config:
    path = folder / "experiment.yaml"
    path.write_text(text)
    return Config.from_yaml(path, {key.replace("__", "."): value for key, value in overrides.items()})


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_in_the_repository_is_valid(path: Path) -> None:
    config = Config.from_yaml(path)
    assert config.pipeline.model.build().get_params()
    place = path.relative_to(ROOT).as_posix()
    assert re.match(rf"# windtunnel (fit|sweep|cascade) --config {place}", path.read_text())


def test_there_are_configs() -> None:
    assert CONFIGS


def test_defaults_and_types(tmp_path: Path) -> None:
    config = read(tmp_path, MINIMAL)
    assert (config.translate.level, config.translate.temperature, config.recipe) == ("L4", "auto", {})
    assert config.pipeline.model == StepConfig(name="LogisticRegression", options={"C": 2})
    assert config.pipeline.numbers == ()


def test_steps_are_a_name_a_mapping_or_a_list_of_these(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        "data: {train: rows.csv, target: y}\n"
        "pipeline:\n"
        "  categories: [RareCategories: {min_count: 10}, TwoHotEncoder]\n"
        "  numbers: StandardScaler\n"
        "  model: LGBMClassifier\n",
    ).pipeline
    assert [step.name for step in config.categories] == ["RareCategories", "TwoHotEncoder"]
    assert config.categories[0].build().min_count == 10
    assert [step.name for step in config.numbers] == ["StandardScaler"]
    assert read(tmp_path, MINIMAL, pipeline__numbers="passthrough").pipeline.numbers == ()


def test_steps_are_chained_concatenated_and_nested(tmp_path: Path) -> None:
    written = (
        "categories: [RareCategories, FeatureUnion: [TwoHotEncoder, sklearn.TargetEncoder]]\n"
        "numbers: {FeatureUnion: [passthrough, {Pipeline: [SimpleImputer, StandardScaler]}]}\n"
        "model: [{BaggingClassifier: {estimator: {LGBMClassifier: {num_leaves: 5}}}}, LogisticRegression]\n"
    )
    config = PipelineConfig.model_validate(yaml.safe_load(written))
    both = config.categories[1].build()
    assert [type(step).__name__ for _, step in both.transformer_list] == ["TwoHotEncoder", "TargetEncoder"]
    whole, scaled = (step for _, step in config.numbers[0].build().transformer_list)
    assert whole == "passthrough" and [name for name, _ in scaled.steps] == ["simpleimputer", "standardscaler"]
    model = config.model.build()
    assert isinstance(model, Pipeline) and model[0].estimator.num_leaves == 5
    assert isinstance(model[-1], LogisticRegression)
    assert PipelineConfig.model_validate(json.loads(config.model_dump_json())) == config


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("paper", {"recipe": "paper"}),
        ({"name": "paper", "epochs": 3}, {"recipe": "paper", "epochs": 3}),
        ({"epochs": 3}, {"recipe": None, "epochs": 3}),
    ],
)
def test_a_recipe_is_a_name_options_or_both(tmp_path: Path, given: object, options: object) -> None:
    assert read(tmp_path, MINIMAL, recipe=given).fit_options == options


def test_a_config_is_frozen(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        read(tmp_path, MINIMAL).data.train = "other.csv"  # type: ignore[misc]


def test_overrides_replace_values_and_add_sections(tmp_path: Path) -> None:
    config = read(tmp_path, MINIMAL, recipe__epochs=3, data__folder="elsewhere")
    assert config.recipe == {"epochs": 3}
    assert config.data.folder == Path("elsewhere")


def test_an_override_below_a_value_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'data.train.x' cannot be set: 'train' is 'rows.csv', no mapping"):
        read(tmp_path, MINIMAL, data__train__x=1)


def test_all_errors_of_the_pipeline_are_named_with_the_nearest_option(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as raised:
        read(
            tmp_path,
            "data: {train: rows.csv, target: y}\n"
            "pipeline:\n"
            "  categories: [RareCategories: {min_counts: 10}]\n"
            "  model: {LGBMClassifier: {num_leafs: 3}}\n",
        )
    message = str(raised.value)
    assert "pipeline.categories.0: RareCategories has no option 'min_counts': did you mean min_count?" in message
    assert "pipeline.model: LGBMClassifier has no option 'num_leafs': did you mean num_leaves?" in message


WRONG_KEYS = """
data: {trian: rows.csv, target: y, validation_fraction: 1.5}
pipeline:
  categories: [windtunnel.RareCategories]
  model: {LGBMClassifier: {num_leafs: 3}}
  numberz: []
translate: {levl: L4}
outptu: folder
"""


def test_all_wrong_keys_are_named_before_anything_slow_is_imported(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(WRONG_KEYS)
    code = f"""
import sys
from windtunnel.experiment.config import Config
try:
    Config.from_yaml({str(tmp_path / "experiment.yaml")!r})
except Exception as error:
    print(error, "torch" in sys.modules)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for part in (
        "key 'data.train' is missing",
        "unknown key 'data.trian': did you mean train?",
        "unknown key 'pipeline.numberz': did you mean numbers?",
        "unknown key 'translate.levl': did you mean level?",
        "unknown key 'outptu': did you mean output?",
    ):
        assert part in output
    assert "num_leafs" not in output and "RareCategories" not in output and output.endswith(" False\n")


def test_all_wrong_values_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as raised:
        read(
            tmp_path,
            "data: {train: rows.csv, target: y, validation_fraction: 1.5}\n"
            "pipeline:\n"
            "  categories: [LeafEncoder: {estimator: LGBMClasifier}]\n"
            "  model: {LGBMClassifier: {num_leafs: 3}}\n"
            "recipe: {epoch: 3}\n",
        )
    for part in (
        "data.validation_fraction=1.5: input should be less than 1",
        "pipeline.categories.0.estimators.estimator: no estimator 'LGBMClasifier' with a translation: did you mean "
        "LGBMClassifier?",
        "LGBMClassifier has no option 'num_leafs'",
        "epoch=3",
        "did you mean epochs?",
    ):
        assert part in str(raised.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("translate.level", "L5", "translate: translate got level='L5'; accepted are L0, L1, L2, L3, L4"),
        ("translate.level", {"model": "L9"}, "level='L9'; accepted are"),
        ("translate.temperature", 0, "temperature=0; accepted are 'auto' and finite numbers above 0"),
        ("translate.temperature", True, "temperature=True; accepted are"),
        ("translate.start", "hot", "translate.start='hot': input should be 'warm' or 'cold'"),
        ("translate.calibrate_rows", -1, "translate.calibrate_rows=-1"),
        ("recipe.learning_rate", -1, "learning_rate=-1"),
        ("data.valid", "valid.csv", "split='part' with valid or test"),
        ("data.test_fraction", 0.9, "leave no rows for training"),
        ("pipeline.model", "StandardScaler", "StandardScaler is no classifier or regressor"),
        ("pipeline.model", "OneHotEncoder", "OneHotEncoder is no classifier or regressor"),
        ("pipeline.model", "os.system", "no estimator 'os.system' with a translation"),
        ("pipeline.model", {"LogisticRegression": {}, "Ridge": {}}, "is no step; write Name, or Name: {option: value}"),
        ("pipeline.model", 3, "3 is no step"),
        ("pipeline.model", {"LogisticRegression": [1]}, "is no step"),
        ("pipeline.model", {"Pipeline": []}, "Pipeline has no steps"),
        ("pipeline.model", {"FeatureUnion": ["Ridge"]}, "FeatureUnion is no classifier or regressor"),
        ("pipeline.model", ["Ridge", "StandardScaler"], "StandardScaler is no classifier or regressor"),
        ("pipeline.model", ["Ridges", "Ridge"], "pipeline.model.steps.0: no estimator 'Ridges'"),
        ("pipeline.model", "passthrough", "passthrough is no classifier or regressor"),
        ("pipeline.model", {"name": "Ridge", "steps": ["Ridge"]}, "Ridge takes no list of steps"),
        ("pipeline.model", "ClassifierChain", "ClassifierChain needs the option 'estimator'"),
        ("pipeline.model", {"Ridge": {"estimator": "Lasso"}}, "Ridge has no option 'estimator'"),
        (
            "pipeline.model",
            {"BaggingClassifier": {"estimator": {"LGBMClassifier": {"num_leafs": 3}}}},
            "pipeline.model.estimators.estimator: LGBMClassifier has no option 'num_leafs'",
        ),
        (
            "pipeline.model",
            {"XGBClassifier": {"max_depth": 3, "n_estimator": 3}},
            "XGBClassifier has no option 'n_estimator': did you mean n_estimators?",
        ),
        ("recipe", "papr", "recipe='papr' is not known; did you mean paper?"),
        ("recipe", {"name": "paper", "epoch": 3}, "epoch=3 is not an option"),
        ("sweep", {"space": {"level": "L4", "learning_rate": 0.001}}, "leaves nothing to try"),
        ("data", 3, "data=3"),
        ("data.drop", ["part"], "drop has 'part', which is the target or the split"),
        ("data.positive", [1], "positive=[1]; give one value of the target"),
    ],
)
def test_wrong_values_name_what_is_accepted(tmp_path: Path, key: str, value: object, message: str) -> None:
    text = MINIMAL.replace("target: y", "target: y, split: part")
    with pytest.raises(BadInput, match=re.escape(message)):
        read(tmp_path, text, **{key.replace(".", "__"): value})


@pytest.mark.parametrize(("written", "value"), [("1e-3", 1e-3), ("2.5e4", 2.5e4), ("1.0e-05", 1e-5), ("7", 7)])
def test_numbers_with_an_exponent_are_numbers(tmp_path: Path, written: str, value: float) -> None:
    config = read(tmp_path, MINIMAL + "recipe: {learning_rate: " + written + "}\n")
    assert config.recipe["learning_rate"] == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: [", "is not valid YAML"),
        ("data: {train: a, train: b}", "key 'train' is given twice"),
        ("data: !!python/object/apply:os.getcwd []", "is not valid YAML"),
        ("- data", "a config is a mapping with the keys data, pipeline, translate, recipe, sweep, output"),
        ("", "holds None; a config is a mapping"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        read(tmp_path, text)


def test_a_config_is_read_as_utf_8_and_may_end_in_catboost(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"data: {train: \xe9.csv, target: y}")
    with pytest.raises(BadInput, match=r"latin\.yaml is no text in UTF-8"):
        Config.from_yaml(tmp_path / "latin.yaml")
    config = read(tmp_path, MINIMAL.replace("LogisticRegression: {C: 2}", "CatBoostClassifier: {iterations: 3}"))
    assert config.pipeline.model.build().get_params()["iterations"] == 3


def test_a_missing_file_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Config.from_yaml(tmp_path / "nothing.yaml")


def test_a_name_in_two_libraries_means_the_class_of_scikit_learn() -> None:
    assert estimator_class("OneHotEncoder").__module__.startswith("sklearn.")
    assert estimator_class("sklearn.OneHotEncoder") is estimator_class("OneHotEncoder")
    assert estimator_class("category_encoders.OneHotEncoder").__module__.startswith("category_encoders.")


def test_lightgbm_options_may_have_any_of_their_aliases() -> None:
    step = StepConfig.model_validate({"LGBMClassifier": {"min_data_in_leaf": 5, "n_estimators": 2, "path_smooth": 1}})
    assert step.build().get_params()["min_data_in_leaf"] == 5


@pytest.mark.filterwarnings("ignore:Class PassiveAggressive:FutureWarning")
def test_every_estimator_can_be_built() -> None:
    for name, cls in estimators().items():
        inner = dict.fromkeys(required_options(cls), StepConfig(name="LogisticRegression"))
        StepConfig(name=name, estimators=inner).build()


@pytest.mark.parametrize("text", ["data: {train: 2020-13-45, target: y}", "data: !!int x", "a: " + "[" * 3000])
def test_values_that_yaml_cannot_build_are_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match="is not valid YAML"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("values", "positive", "classes"), [("True,False", 1, [False, True]), ("a,b,c", "b", ["not b", "b"])]
)
def test_classes_are_named_by_the_labels_of_the_target(
    tmp_path: Path, values: str, positive: Any, classes: Any
) -> None:
    rows = "".join(f"{x},{values.split(',')[x % (values.count(',') + 1)]}\n" for x in range(40))
    (tmp_path / "rows.csv").write_text("x,y\n" + rows)
    config = read(tmp_path, MINIMAL, data__positive=positive, data__folder=str(tmp_path))
    parts = load_parts(config.data)
    assert parts.classes is not None and parts.classes.tolist() == classes
    assert {*parts.train[1]} == {0, 1} and [*parts.held_out] == ["valid", "test"]


def test_named_classes_are_texts_whatever_labels_the_model_has_learned(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{x},{'ab'[x % 2]}\n" for x in range(40)))
    parts = load_parts(read(tmp_path, MINIMAL, data__positive="b", data__folder=str(tmp_path)).data)
    rows, target = parts.train[:2]
    net = windtunnel.compile(DummyClassifier(strategy="prior").fit(rows, target))
    parts.name_classes(net)
    assert {*net.predict(rows)} <= {"a", "b"}
