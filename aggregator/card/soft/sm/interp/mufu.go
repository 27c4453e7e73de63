package interp

import "math"

// The special function unit's functions, of floats of 32 bits as doubles. All executors compute them by these
// steps, so that they have the same bits: additions and products that each round once, and no library. The
// hardware's last bits are not known. The conversions keep Go from joining a product and a sum.

// Rsqrt is one over a square root, each rounded to 32 bits.
func Rsqrt(v float64) float64 { return float64(1 / float32(math.Sqrt(v))) }

// Coefficients of polynomials, the highest power first.
var (
	// Exp2Terms are (log 2)^n / n!.
	Exp2Terms = [...]float64{
		1.01780860092396960e-07, 1.32154867901443053e-06, 1.52527338040598377e-05, 1.54035303933816061e-04, 1.33335581464284411e-03,
		9.61812910762847688e-03, 5.55041086648215762e-02, 2.40226506959100694e-01, 6.93147180559945286e-01, 1,
	}
	// Log2Terms are 2 / log 2 / n, of odd n.
	Log2Terms = [...]float64{
		1.92359338785195122e-01, 2.21953083213686675e-01, 2.62308189252538793e-01, 3.20598897975325203e-01, 4.12198583111132388e-01,
		5.77078016355585310e-01, 9.61796693925975554e-01, 2.88539008177792677,
	}
	SinTerms = [...]float64{
		1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
		8.33333333332248946124e-03, -1.66666666666666324348e-01,
	}
	CosTerms = [...]float64{
		-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07, 2.48015872894767294178e-05,
		-1.38888888888741095749e-03, 4.16666666666666019037e-02, -0.5, 1,
	}
	// QuarterTurn is pi/2 in parts of 33 bits, so that the first products are exact.
	QuarterTurn = [...]float64{1.57079632673412561417e+00, 6.07710050630396597660e-11, 2.02226624871116645580e-21}
)

const (
	// MaxExp2 is beyond the exponents of 32 bits.
	MaxExp2 = 200
	// TwoOverPi counts quarter turns.
	TwoOverPi = 6.36619772367581382433e-01
)

func polynomial(terms []float64, x float64) float64 {
	p := terms[0]
	for _, c := range terms[1:] {
		p = float64(p*x) + c
	}
	return p
}

// Ex2 is 2 to a power.
func Ex2(x float64) float64 {
	if x != x {
		return x
	}
	x = min(max(x, -MaxExp2), MaxExp2)
	n := math.RoundToEven(x)
	return polynomial(Exp2Terms[:], x-n) * math.Float64frombits(uint64(int64(n)+1023)<<52)
}

// Lg2 is the logarithm to the base 2.
func Lg2(x float64) float64 {
	switch {
	case x != x || x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	case x > math.MaxFloat64:
		return x
	}
	const one = 1023 << 52
	bits := math.Float64bits(x)
	e, m := float64(int64(bits>>52)-1023), math.Float64frombits(bits&(1<<52-1)|one)
	if m > math.Sqrt2 {
		e, m = e+1, m*0.5
	}
	s := (m - 1) / (m + 1)
	return float64(polynomial(Log2Terms[:], float64(s*s))*s) + e
}

// Sin and Cos are of radians. Far from zero they lose the angle, as the hardware does.
func Sin(x float64) float64 { return quarter(x, 0) }

// Cos is Sin, a quarter turn later.
func Cos(x float64) float64 { return quarter(x, 1) }

func quarter(x, later float64) float64 {
	n := math.RoundToEven(float64(x * TwoOverPi))
	r := x
	for _, part := range QuarterTurn {
		r -= float64(n * part)
	}
	if r > 1 {
		r = 1
	}
	if r < -1 {
		r = -1
	}
	n += later
	n -= float64(4 * math.Floor(float64(n*0.25)))
	z := float64(r * r)
	v := float64(float64(polynomial(SinTerms[:], z)*z)*r) + r
	if n == 1 || n == 3 {
		v = polynomial(CosTerms[:], z)
	}
	if n >= 2 {
		v = -v
	}
	return v
}
