package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// An option is one field of a Config.
type option struct {
	path  string // in the file: "card.vram"
	flag  string // "vram"
	value reflect.Value
	tag   reflect.StructTag
}

// options lists the fields of a Config, Profile or GPU, in their order, without
// its lists.
func options(p any) []option { return walk(reflect.ValueOf(p).Elem(), "", "") }

func walk(v reflect.Value, prefix, flags string) []option {
	var out []option
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("yaml")
		switch {
		case !f.IsExported() || isList(f.Type):
			continue
		case f.Anonymous:
			out = append(out, walk(v.Field(i), prefix, flags)...)
			continue
		case isSection(f.Type):
			out = append(out, walk(v.Field(i), prefix+name+".", flags+f.Tag.Get("prefix"))...)
			continue
		}
		out = append(out, option{path: prefix + name, flag: flags + name, value: v.Field(i), tag: f.Tag})
	}
	return out
}

var unmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// isSection tells whether values of type t are mappings of options.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(unmarshaler)
}

// isList tells whether values of type t are sequences of mappings.
func isList(t reflect.Type) bool { return t.Kind() == reflect.Slice && isSection(t.Elem()) }

// take sets the option to what the user wrote, if that is possible. If it is not, value is what
// the error, which says why, does not name itself.
func (o *option) take(text string) (value string, err error) {
	if err := o.set(text); err != nil {
		return "", err
	}
	if err := o.check(); err != nil {
		return text, err
	}
	return "", nil
}

// Tags are a flag's, as the flag library has them.
type Tags interface {
	Has(name string) bool
	Get(name string) string
}

// ParseFlag reads a flag as a file's options are read, and holds it against the bounds in its
// tags, if it has any. Its error names the text.
func ParseFlag(target reflect.Value, text string, of Tags) error {
	var tags []string
	for _, name := range []string{"min", "max", "step", "pow2"} {
		if of.Has(name) {
			tags = append(tags, fmt.Sprintf("%s:%q", name, of.Get(name)))
		}
	}
	o := option{value: target, tag: reflect.StructTag(strings.Join(tags, " "))}
	if len(tags) == 0 { // whose bounds are its command's business
		return o.set(text)
	}
	value, err := o.take(text)
	if value != "" {
		err = fmt.Errorf("%s: %w", value, err)
	}
	return err
}

// set parses text into the option. Its error names the text.
func (o *option) set(text string) error {
	if isWords(o.value.Type()) {
		text = unbracket(text)
	}
	switch p := o.value.Addr().Interface().(type) {
	case *Size:
		return o.within(p.UnmarshalText([]byte(text)))
	case *Percent:
		return o.within(p.UnmarshalText([]byte(text)))
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
			return o.within(fmt.Errorf("%q is not a whole number", text))
		}
		*p = n
	case *time.Duration:
		d, err := ParseTimeWithin(text, o.tag.Get("min"), o.tag.Get("max"))
		if err != nil {
			return err
		}
		*p = d
	default:
		panic(fmt.Sprintf("config: option %s has type %T, which nothing parses", o.path, p))
	}
	return nil
}

// unbracket is a list without the brackets that YAML has around one: who knows it from a file
// writes it so elsewhere, too.
func unbracket(text string) string {
	if in, ok := strings.CutPrefix(text, "["); ok {
		if in, ok := strings.CutSuffix(in, "]"); ok {
			return in
		}
	}
	return text
}

// within adds to what is wrong with a number between which two it must be.
func (o *option) within(err error) error {
	least, most := o.tag.Get("min"), o.tag.Get("max")
	if err == nil || least == "" || most == "" {
		return err
	}
	return fmt.Errorf("%w; it %s", err, mustBe(least, most))
}

// number is the option's value as one, if it is one.
func (o *option) number() (n uint64, ok bool) {
	switch v := o.value.Interface().(type) {
	case Size:
		return uint64(v), true
	case int:
		return uint64(max(v, 0)), true
	case Percent:
		return uint64(max(v, 0)), true
	case time.Duration:
		return uint64(max(v, 0)), true
	}
	return 0, false
}

// negative tells whether the value is below zero, which no number may be.
func (o *option) negative() bool {
	return o.value.CanInt() && o.value.Int() < 0
}

// limit is the number in one of the option's own tags.
func (o *option) limit(name string) (n uint64, ok bool) {
	text, ok := o.tag.Lookup(name)
	if !ok {
		return 0, false
	}
	l := option{path: o.path, value: reflect.New(o.value.Type()).Elem()}
	if err := l.set(text); err != nil {
		panic(fmt.Sprintf("config: tag %s of option %s: %v", name, o.path, err))
	}
	n, _ = l.number()
	return n, true
}

// check holds the value against the option's tags and says what would be right.
func (o *option) check() error {
	if words, ok := o.tag.Lookup("oneof"); ok {
		for w := range strings.SplitSeq(words, ",") {
			if o.value.String() == w {
				return nil
			}
		}
		return fmt.Errorf("must be %s", strings.ReplaceAll(words, ",", " or "))
	}
	n, ok := o.number()
	if !ok {
		return nil
	}
	least, hasLeast := o.limit("min")
	most, hasMost := o.limit("max")
	step, hasStep := o.limit("step")
	_, pow2 := o.tag.Lookup("pow2")
	good := !(o.negative() || hasLeast && n < least || hasMost && n > most || hasStep && n%step != 0 || pow2 && n&(n-1) != 0)
	if good {
		return nil
	}
	must := mustBe(o.tag.Get("min"), o.tag.Get("max"))
	if hasStep {
		must += ", a multiple of " + o.tag.Get("step")
	}
	if pow2 {
		must += ", a power of two"
	}
	return fmt.Errorf("%s", must)
}
