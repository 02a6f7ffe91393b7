"""What two other translators say that they take: facts, read from their own tables.

- Hummingbird 0.4.12 (the wheel ``hummingbird-ml``): the lists of ``hummingbird/ml/supported.py`` for scikit-learn,
  LightGBM, XGBoost, Prophet and Spark ML, and the compositions that ``hummingbird/ml/_parse.py`` walks. Its ONNX-ML
  operators are no estimators. A ``FunctionTransformer`` passes there as the identity, whatever its function is.
- sklearn-onnx 1.20.0 (the wheel ``skl2onnx``): the table of ``skl2onnx/_supported_operators.py``, each entry of which
  has a converter. Its own three estimators, scikit-learn's private ``_ConstantPredictor`` and the ``Imputer`` that
  scikit-learn dropped in 0.22 are left out, and so is what onnxmltools adds to it.

Being in a table says that there is a converter, not that its outputs are right on every fitted state.
"""

from collections.abc import Mapping


def _named(modules: Mapping[str, str]) -> frozenset[str]:
    return frozenset(f"{module}.{name}" for module, names in modules.items() for name in names.split())


HUMMINGBIRD = _named(
    {
        "sklearn.cluster": "KMeans MeanShift",
        "sklearn.compose": "ColumnTransformer",
        "sklearn.cross_decomposition": "PLSRegression",
        "sklearn.decomposition": "FastICA KernelPCA PCA TruncatedSVD",
        "sklearn.ensemble": (
            "BaggingClassifier BaggingRegressor ExtraTreesClassifier ExtraTreesRegressor GradientBoostingClassifier "
            "GradientBoostingRegressor HistGradientBoostingClassifier HistGradientBoostingRegressor IsolationForest "
            "RandomForestClassifier RandomForestRegressor StackingClassifier StackingRegressor"
        ),
        "sklearn.feature_selection": "SelectKBest SelectPercentile VarianceThreshold",
        "sklearn.impute": "MissingIndicator SimpleImputer",
        "sklearn.linear_model": (
            "ElasticNet GammaRegressor Lasso LinearRegression LogisticRegression LogisticRegressionCV "
            "PoissonRegressor Ridge RidgeCV SGDClassifier TweedieRegressor"
        ),
        "sklearn.mixture": "BayesianGaussianMixture",
        "sklearn.model_selection": "GridSearchCV RandomizedSearchCV",
        "sklearn.multioutput": "MultiOutputRegressor RegressorChain",
        "sklearn.naive_bayes": "BernoulliNB GaussianNB MultinomialNB",
        "sklearn.neighbors": "KNeighborsClassifier KNeighborsRegressor",
        "sklearn.neural_network": "MLPClassifier MLPRegressor",
        "sklearn.pipeline": "FeatureUnion Pipeline",
        "sklearn.preprocessing": (
            "Binarizer FunctionTransformer KBinsDiscretizer LabelEncoder MaxAbsScaler MinMaxScaler Normalizer "
            "OneHotEncoder PolynomialFeatures RobustScaler StandardScaler"
        ),
        "sklearn.svm": "LinearSVC LinearSVR NuSVC SVC",
        "sklearn.tree": "DecisionTreeClassifier DecisionTreeRegressor",
        "lightgbm": "Booster LGBMClassifier LGBMRanker LGBMRegressor",
        "prophet": "Prophet",
        "pyspark.ml.classification": "LogisticRegressionModel",
        "pyspark.ml.feature": "Bucketizer VectorAssembler",
        "pyspark.ml.pipeline": "PipelineModel",
        "xgboost": "XGBClassifier XGBRanker XGBRegressor",
    }
)

SKLEARN_ONNX = _named(
    {
        "sklearn.calibration": "CalibratedClassifierCV",
        "sklearn.cluster": "KMeans MiniBatchKMeans",
        "sklearn.compose": "ColumnTransformer",
        "sklearn.cross_decomposition": "PLSRegression",
        "sklearn.decomposition": "IncrementalPCA KernelPCA PCA TruncatedSVD",
        "sklearn.discriminant_analysis": "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
        "sklearn.ensemble": (
            "AdaBoostClassifier AdaBoostRegressor BaggingClassifier BaggingRegressor ExtraTreesClassifier "
            "ExtraTreesRegressor GradientBoostingClassifier GradientBoostingRegressor HistGradientBoostingClassifier "
            "HistGradientBoostingRegressor IsolationForest RandomForestClassifier RandomForestRegressor "
            "RandomTreesEmbedding StackingClassifier StackingRegressor VotingClassifier VotingRegressor"
        ),
        "sklearn.feature_extraction": "DictVectorizer FeatureHasher",
        "sklearn.feature_extraction.text": "CountVectorizer TfidfTransformer TfidfVectorizer",
        "sklearn.feature_selection": (
            "GenericUnivariateSelect RFE RFECV SelectFdr SelectFpr SelectFromModel SelectFwe SelectKBest "
            "SelectPercentile VarianceThreshold"
        ),
        "sklearn.gaussian_process": "GaussianProcessClassifier GaussianProcessRegressor",
        "sklearn.impute": "KNNImputer SimpleImputer",
        "sklearn.linear_model": (
            "ARDRegression BayesianRidge ElasticNet ElasticNetCV GammaRegressor HuberRegressor Lars LarsCV Lasso "
            "LassoCV LassoLars LassoLarsCV LassoLarsIC LinearRegression LogisticRegression LogisticRegressionCV "
            "MultiTaskElasticNet MultiTaskElasticNetCV MultiTaskLasso MultiTaskLassoCV OrthogonalMatchingPursuit "
            "OrthogonalMatchingPursuitCV PassiveAggressiveClassifier PassiveAggressiveRegressor Perceptron "
            "PoissonRegressor QuantileRegressor RANSACRegressor Ridge RidgeCV RidgeClassifier RidgeClassifierCV "
            "SGDClassifier SGDOneClassSVM SGDRegressor TheilSenRegressor TweedieRegressor"
        ),
        "sklearn.mixture": "BayesianGaussianMixture GaussianMixture",
        "sklearn.model_selection": "GridSearchCV TunedThresholdClassifierCV",
        "sklearn.multiclass": "OneVsOneClassifier OneVsRestClassifier",
        "sklearn.multioutput": "MultiOutputClassifier MultiOutputRegressor",
        "sklearn.naive_bayes": "BernoulliNB CategoricalNB ComplementNB GaussianNB MultinomialNB",
        "sklearn.neighbors": (
            "KNeighborsClassifier KNeighborsRegressor KNeighborsTransformer LocalOutlierFactor NearestNeighbors "
            "NeighborhoodComponentsAnalysis RadiusNeighborsClassifier RadiusNeighborsRegressor"
        ),
        "sklearn.neural_network": "MLPClassifier MLPRegressor",
        "sklearn.pipeline": "FeatureUnion Pipeline",
        "sklearn.preprocessing": (
            "Binarizer FunctionTransformer KBinsDiscretizer KernelCenterer LabelBinarizer LabelEncoder MaxAbsScaler "
            "MinMaxScaler Normalizer OneHotEncoder OrdinalEncoder PolynomialFeatures PowerTransformer "
            "QuantileTransformer RobustScaler StandardScaler TargetEncoder"
        ),
        "sklearn.random_projection": "GaussianRandomProjection",
        "sklearn.svm": "LinearSVC LinearSVR NuSVC NuSVR OneClassSVM SVC SVR",
        "sklearn.tree": "DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor",
    }
)

PEERS: dict[str, frozenset[str]] = {"Hummingbird 0.4.12": HUMMINGBIRD, "sklearn-onnx 1.20.0": SKLEARN_ONNX}
"""Title of a column in docs/coverage.md -> classes by their public names."""
