"""Fits what it is given on standard input by scikit-learn, and prints what it found."""
import json
import sys
import warnings

import numpy as np
from sklearn.linear_model import Lasso, LinearRegression, Ridge
from sklearn.model_selection import GroupKFold, LeaveOneGroupOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

q = json.load(sys.stdin)
X, y = np.array(q["x"]), np.array(q["y"])
n = len(y)


def model(method, alpha):
    if method == "ridge":
        return Ridge(alpha=alpha, solver="svd")
    if method == "ols":
        return LinearRegression()
    if method == "lasso":  # its objective is SSE/2n + a·|w|
        return Lasso(alpha=alpha / (2 * n), tol=1e-14, max_iter=10_000_000)
    # Ridge without negative weights is least squares without them, on more rows.
    return "positive"


out = []
for case in q["cases"]:
    scaler = StandardScaler().fit(X)
    Z = scaler.transform(X)
    m = model(case["method"], case["alpha"])
    if m == "positive":
        p = Z.shape[1]
        m = LinearRegression(positive=True, fit_intercept=False)
        m.fit(np.vstack([Z, np.sqrt(case["alpha"]) * np.eye(p)]), np.concatenate([y - y.mean(), np.zeros(p)]))
        w, at = m.coef_, y.mean()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            m.fit(Z, y)
        w, at = m.coef_, m.intercept_
    scale = np.where(scaler.scale_ > 0, scaler.scale_, 1)
    out.append({"weights": w.tolist(), "coefficients": (w / scale).tolist(), "intercept": float(at - (w / scale) @ scaler.mean_)})

held = None
if "groups" in q:
    pipe = make_pipeline(StandardScaler(), Ridge(alpha=q["alpha"], solver="svd"))
    held = cross_val_predict(pipe, X, y, cv=LeaveOneGroupOut(), groups=q["groups"]).tolist()
json.dump({"fits": out, "held": held}, sys.stdout)
