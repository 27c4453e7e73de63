package stats

import (
	"errors"
	"math"
)

// Fitted is the result of a fit.
type Fitted struct {
	Coefficients []float64
	// Residual is the root of the mean square of what the fit leaves over, in the
	// weighted unit: with weights of 1/y it is a share of y.
	Residual float64
	// R2 is the share of the weighted squares that the fit explains: about zero, not about
	// their mean, which with weights of 1/y all of them are.
	R2 float64
}

// ErrDegenerate says that the measurements do not tell the columns apart.
var ErrDegenerate = errors.New("the measurements do not tell the terms of the model apart")

// Fit finds the coefficients c that make the squares of (x·c - y) * weight least,
// for rows x. There must be at least as many rows as columns.
//
// It reduces the rows by Householder reflections rather than solving the normal
// equations: those square the condition of columns as unlike as a constant and a
// million writes.
func Fit(x [][]float64, y, weight []float64) (Fitted, error) {
	rows := len(x)
	if rows == 0 || len(y) != rows || len(weight) != rows || rows < len(x[0]) {
		return Fitted{}, ErrDegenerate
	}
	cols := len(x[0])
	// a has the weighted rows, the right side as its last column. Columns are
	// scaled to length 1, so that they compare.
	a := make([][]float64, rows)
	for i := range a {
		a[i] = make([]float64, cols+1)
		for j, v := range x[i] {
			a[i][j] = v * weight[i]
		}
		a[i][cols] = y[i] * weight[i]
	}
	scale := make([]float64, cols)
	for j := range scale {
		if scale[j] = norm(a, 0, j); scale[j] == 0 {
			return Fitted{}, ErrDegenerate
		}
		for i := range a {
			a[i][j] /= scale[j]
		}
	}
	total := 0.0
	for i := range a {
		total += a[i][cols] * a[i][cols]
	}
	for j := range cols {
		if !reflect(a, j) {
			return Fitted{}, ErrDegenerate
		}
	}
	f := Fitted{Coefficients: make([]float64, cols)}
	for j := cols - 1; j >= 0; j-- {
		v := a[j][cols]
		for k := j + 1; k < cols; k++ {
			v -= a[j][k] * f.Coefficients[k]
		}
		f.Coefficients[j] = v / a[j][j]
	}
	for j := range f.Coefficients {
		f.Coefficients[j] /= scale[j]
	}
	left := norm(a, cols, cols)
	f.Residual = left / math.Sqrt(float64(rows))
	if total > 0 {
		f.R2 = 1 - left*left/total
	}
	return f, nil
}

// norm is the length of column j from row i on.
func norm(a [][]float64, i, j int) float64 {
	n := 0.0
	for ; i < len(a); i++ {
		n = math.Hypot(n, a[i][j])
	}
	return n
}

// independent is how much of a column of length 1 must be left when the columns
// before it have been taken out.
const independent = 1e-9

// reflect mirrors the rows from j on so that column j has only its first element
// left. It returns false if there is nothing left to mirror.
func reflect(a [][]float64, j int) bool {
	length := norm(a, j, j)
	if length < independent {
		return false
	}
	if a[j][j] > 0 {
		length = -length
	}
	v := make([]float64, len(a))
	vv := 0.0
	for i := j; i < len(a); i++ {
		v[i] = a[i][j]
		if i == j {
			v[i] -= length
		}
		vv += v[i] * v[i]
	}
	for k := j; k < len(a[j]); k++ {
		dot := 0.0
		for i := j; i < len(a); i++ {
			dot += v[i] * a[i][k]
		}
		for i := j; i < len(a); i++ {
			a[i][k] -= 2 * dot / vv * v[i]
		}
	}
	return true
}
