package compile

// What a branch found out about numbers narrows their ranges on the way behind it. Only numbers that are the
// same in all lanes count: of others, the base belongs to lanes that may have gone another way.

// A comparison is where a boolean comes from.
type comparison struct {
	cond string
	x, y *Value
}

// opposites are conditions that hold where others do not.
var opposites = map[string]string{
	"ult": "uge", "uge": "ult", "ule": "ugt", "ugt": "ule", "slt": "sge", "sge": "slt", "sle": "sgt", "sgt": "sle", "eq": "ne", "ne": "eq",
}

// opposite is the comparison that holds where this one does not.
func (c *comparison) opposite() *comparison {
	if c == nil {
		return nil
	}
	return &comparison{opposites[c.cond], c.x, c.y}
}

// knowing emits what follows where a condition holds, or does not.
func (b *Builder) knowing(guard *Value, holds bool, then func()) {
	if b.fact = guard.compared; !holds {
		b.fact = guard.compared.opposite()
	}
	then()
	b.fact = nil
}

// refined is a value with what is known of it where a comparison holds.
func (b *Builder) refined(v *Value) *Value {
	c := b.fact
	if c == nil || v.Shape != Uniform || v != c.x && v != c.y || v.constant() {
		return v
	}
	cond, x, y := c.cond, c.x.Kind, c.y.Kind
	if cond[0] == 's' {
		if top := ones(v.width) >> 1; x.Max > top || y.Max > top {
			return v
		}
		cond = "u" + cond[1:]
	}
	if v == c.y {
		x, y, cond = y, x, map[string]string{"ult": "ugt", "ule": "uge", "ugt": "ult", "uge": "ule", "eq": "eq", "ne": "ne"}[cond]
	}
	low, high := x.Min, x.Max
	switch cond {
	case "ult":
		high = min(high, max(y.Max, 1)-1)
	case "ule":
		high = min(high, y.Max)
	case "ugt":
		low = max(low, min(y.Min, ones(v.width)-1)+1)
	case "uge":
		low = max(low, y.Min)
	case "eq":
		low, high = max(low, y.Min), min(high, y.Max)
	}
	if low >= high { // a constant would have another form
		return v
	}
	out := *v
	out.Min, out.Max = low, high
	return &out
}
