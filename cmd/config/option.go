package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-playground/validator/v10"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
)

// An option is one field of a structure of options.
type option struct {
	path  string // the key in the file: "card.vram"
	flag  string // "vram"
	value reflect.Value
	tag   reflect.StructTag
}

// options lists the options of a Config, GPU or Schedule, in their order. Only fields with a
// key in the file are options.
func options(p any) []option { return walk(reflect.ValueOf(p).Elem(), "", "") }

var unmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

func walk(v reflect.Value, prefix, flags string) (out []option) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("yaml")
		section := f.Type.Kind() == reflect.Struct && !reflect.PointerTo(f.Type).Implements(unmarshaler)
		switch {
		case f.Anonymous:
			out = append(out, walk(v.Field(i), prefix, flags)...)
		case name == "":
		case section:
			out = append(out, walk(v.Field(i), prefix+name+".", flags+f.Tag.Get("prefix"))...)
		default:
			out = append(out, option{prefix + name, flags + name, v.Field(i), f.Tag})
		}
	}
	return out
}

// paths lists the keys of options.
func paths(of []option) []string {
	out := make([]string, len(of))
	for i := range of {
		out[i] = of[i].path
	}
	return out
}

func (o *option) live() bool { _, ok := o.tag.Lookup("live"); return ok }

// set parses the text into the option and holds it against the bounds in its tag. Its error
// names the text and says what would be accepted.
func (o *option) set(text string) error {
	if isList(o.value.Type()) {
		text = unbracket(text)
	}
	before := reflect.New(o.value.Type()).Elem()
	before.Set(o.value)
	if err := o.parse(text); err != nil {
		if must := o.accepts(); must != "" {
			err = fmt.Errorf("%w; must be %s", err, must)
		}
		return err
	}
	if !o.valid() {
		o.value.Set(before)
		return fmt.Errorf("%s: must be %s", text, o.accepts())
	}
	return nil
}

// valid reports whether the value keeps to the bounds in the option's tag.
func (o *option) valid() bool {
	rules := o.tag.Get("validate")
	return rules == "" || checker.Var(o.value.Interface(), rules) == nil
}

func (o *option) parse(text string) error {
	switch p := o.value.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(text))
	case *string:
		*p = text
	case *bool:
		b, ok := map[string]bool{"true": true, "false": false}[text]
		if !ok {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*p = b
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*p = n
	case *uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number, 0 or more", text)
		}
		*p = n
	case *time.Duration:
		d, err := ParseTime(text)
		if err != nil {
			return err
		}
		*p = d
	default:
		panic(fmt.Sprintf("config: option %s has type %T, which nothing parses", o.path, p))
	}
	return nil
}

// text is the value as the option's key takes it, in the form of the defaults.
func (o *option) text() string {
	if d, ok := o.value.Interface().(time.Duration); ok {
		return timeText(d)
	}
	return fmt.Sprint(o.value.Interface())
}

// checker holds values against the validate tags. Its own rules are for sizes, whose bounds
// have units.
var checker = func() *validator.Validate {
	v := validator.New()
	bound := func(holds func(value, bound Size) bool) validator.Func {
		return func(f validator.FieldLevel) bool {
			var b Size
			if p := f.Param(); p != "" {
				if err := b.UnmarshalText([]byte(p)); err != nil {
					panic(fmt.Sprintf("config: bound %s: %v", p, err))
				}
			}
			return holds(Size(f.Field().Uint()), b)
		}
	}
	for tag, holds := range map[string]func(value, bound Size) bool{
		"atleast":  func(v, b Size) bool { return v >= b },
		"atmost":   func(v, b Size) bool { return v <= b },
		"multiple": func(v, b Size) bool { return v%b == 0 },
		"pow2":     func(v, _ Size) bool { return v&(v-1) == 0 },
	} {
		if err := v.RegisterValidation(tag, bound(holds)); err != nil {
			panic(err)
		}
	}
	return v
}()

// Accepts says what a validate tag accepts: "64MiB to 6GiB, a multiple of 64MiB".
func Accepts(validate string) string {
	rules := make(map[string]string)
	for rule := range strings.SplitSeq(validate, ",") {
		name, param, _ := strings.Cut(rule, "=")
		rules[name] = param
	}
	if words := rules["oneof"]; words != "" {
		return either(strings.Fields(words))
	}
	low, high := rules["min"]+rules["atleast"], rules["max"]+rules["atmost"]
	if low == "" {
		return ""
	}
	out := low + " to " + high
	if step := rules["multiple"]; step != "" {
		out += ", a multiple of " + step
	}
	if _, ok := rules["pow2"]; ok {
		out += ", a power of two"
	}
	return out
}

func (o *option) accepts() string { return Accepts(o.tag.Get("validate")) }

// ParseFlag reads a flag as the options of a file are read. The tag is that of its field.
func ParseFlag(target reflect.Value, text, validate string) error {
	o := option{value: target, tag: reflect.StructTag(fmt.Sprintf("validate:%q", validate))}
	return o.set(text)
}

// FlagMeant is the flag that may be meant by one that there is not: flags are known by their
// keys in the file, too.
func FlagMeant(name string) (flag string, ok bool) {
	all := options(new(Config))
	match := func(o option) bool {
		return plain(o.path) == plain(name) || strings.HasSuffix(plain(o.path), "-"+plain(name))
	}
	i := slices.IndexFunc(all, match)
	if i < 0 || slices.ContainsFunc(all[i+1:], match) {
		return "", false
	}
	return all[i].flag, true
}

// isList reports whether values of the type are lists, written with commas.
func isList(t reflect.Type) bool {
	return t == reflect.TypeFor[Counts]() || t == reflect.TypeFor[aperture.Map]()
}

// unbracket removes the brackets that YAML has around a list.
func unbracket(text string) string {
	if in, ok := strings.CutPrefix(text, "["); ok {
		if in, ok := strings.CutSuffix(in, "]"); ok {
			return in
		}
	}
	return text
}

// A Setting is an option in force.
type Setting struct {
	Key       string
	Value     string // as its key takes it
	Inherited string // what the value inherit stands for
	Default   string // "" for none
	Live      bool   // it can be changed while guests run
}

// Settings lists the options of a [Config], [GPU] or [Schedule].
func Settings(of any) (out []Setting) {
	for _, o := range options(of) {
		out = append(out, Setting{Key: o.path, Value: o.text(), Default: o.tag.Get("default"), Live: o.live()})
	}
	return out
}

// An Option describes one option for the reference pages.
type Option struct {
	Key, Flag, Type, Default, Accepts, Help string
	Live                                    bool
}

// Reference describes the options of a [Config], [GPU] or [Schedule].
func Reference(of any) (out []Option) {
	for _, o := range options(of) {
		out = append(out, Option{
			Key: o.path, Flag: o.flag, Type: o.tag.Get("placeholder"), Default: o.tag.Get("default"),
			Accepts: o.accepts(), Help: o.tag.Get("help"), Live: o.live(),
		})
	}
	return out
}
