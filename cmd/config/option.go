package config

import (
	"cmp"
	"encoding"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/cmd/api"
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
		switch {
		case f.Anonymous && f.IsExported():
			out = append(out, walk(v.Field(i), prefix, flags)...)
		case name == "":
		case f.Type.Kind() == reflect.Struct && !reflect.PointerTo(f.Type).Implements(unmarshaler):
			out = append(out, walk(v.Field(i), prefix+name+".", flags+f.Tag.Get("prefix"))...)
		default:
			out = append(out, option{prefix + name, flags + name, v.Field(i), f.Tag})
		}
	}
	return out
}

// find returns the option of that key, or nil.
func find(of []option, key string) *option {
	if i := slices.IndexFunc(of, func(o option) bool { return o.path == key }); i >= 0 {
		return &of[i]
	}
	return nil
}

// keys lists the keys of options.
func keys(of []option) (out []string) {
	for i := range of {
		out = append(out, of[i].path)
	}
	return out
}

func (o *option) live() bool { _, ok := o.tag.Lookup("live"); return ok }

// isList reports whether the value is a list, written with commas.
func (o *option) isList() bool {
	return o.value.Type() == reflect.TypeFor[Counts]() || o.value.Type() == reflect.TypeFor[aperture.Map]()
}

// set parses the text into the option and holds it against the bounds in its tag. Its error
// names the text and says what would be accepted.
func (o *option) set(text string) error {
	if o.isList() && strings.HasPrefix(text, "[") {
		text = strings.TrimSuffix(text[1:], "]")
	}
	v := option{value: reflect.New(o.value.Type()).Elem(), tag: o.tag}
	accepts := Accepts(o.tag.Get("validate"))
	switch err := v.parse(text); {
	case err != nil && accepts != "":
		return fmt.Errorf("%w; must be %s", err, accepts)
	case err != nil:
		return err
	case !v.valid():
		return fmt.Errorf("%s: must be %s", text, accepts)
	}
	o.value.Set(v.value)
	return nil
}

func (o *option) parse(text string) (err error) {
	switch p := o.value.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(text))
	case *string:
		*p = text
	case *bool:
		if *p = text == "true"; !*p && text != "false" {
			return fmt.Errorf("%q is neither true nor false", text)
		}
	case *int:
		if *p, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
	case *uint64:
		if *p, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("%q is not a whole number, 0 or more", text)
		}
	case *time.Duration:
		*p, err = ParseTime(text)
	default:
		panic(fmt.Sprintf("config: option %s has type %T, which nothing parses", o.path, p))
	}
	return err
}

// text is the value as the option's key takes it, in the form of the defaults.
func (o *option) text() string {
	if d, ok := o.value.Interface().(time.Duration); ok {
		return timeText(d)
	}
	return fmt.Sprint(o.value.Interface())
}

// valid reports whether the value keeps to the bounds in the option's tag.
func (o *option) valid() bool {
	for rule := range strings.SplitSeq(o.tag.Get("validate"), ",") {
		name, param, _ := strings.Cut(rule, "=")
		holds := true
		switch name {
		case "oneof":
			holds = slices.Contains(strings.Fields(param), o.value.String())
		case "min":
			holds = o.compare(param) >= 0
		case "max":
			holds = o.compare(param) <= 0
		case "multiple":
			holds = o.value.Uint()%o.like(param).Uint() == 0
		case "pow2":
			holds = bits.OnesCount64(o.value.Uint()) == 1
		}
		if !holds {
			return false
		}
	}
	return true
}

// like is a bound as a value of the option's type.
func (o *option) like(bound string) reflect.Value {
	b := option{path: o.path, value: reflect.New(o.value.Type()).Elem()}
	if err := b.parse(bound); err != nil {
		panic(fmt.Sprintf("config: bound of %s: %v", o.path, err))
	}
	return b.value
}

// compare compares the value, a whole number of any type, with a bound.
func (o *option) compare(bound string) int {
	b := o.like(bound)
	if b.CanUint() {
		return cmp.Compare(o.value.Uint(), b.Uint())
	}
	return cmp.Compare(o.value.Int(), b.Int())
}

// Accepts says what a validate tag accepts: "64MiB to 6GiB, a multiple of 64MiB".
func Accepts(validate string) (out string) {
	for rule := range strings.SplitSeq(validate, ",") {
		switch name, param, _ := strings.Cut(rule, "="); name {
		case "oneof":
			out = either(strings.Fields(param))
		case "min":
			out = param
		case "max":
			out += " to " + param
		case "multiple":
			out += ", a multiple of " + param
		case "pow2":
			out += ", a power of two"
		}
	}
	return out
}

// ParseFlag reads a flag as the options of a file are read. The tag is that of its field.
func ParseFlag(target reflect.Value, text, validate string) error {
	o := option{value: target, tag: reflect.StructTag(fmt.Sprintf("validate:%q", validate))}
	return o.set(text)
}

// FlagMeant is the flag that may be meant by one that there is not: flags are known by their
// keys in the file, too.
func FlagMeant(name string) (flag string, ok bool) {
	for _, o := range options(new(Config)) {
		if path := plain(o.path); path == plain(name) || strings.HasSuffix(path, "-"+plain(name)) {
			if ok {
				return "", false // two may be meant
			}
			flag, ok = o.flag, true
		}
	}
	return flag, ok
}

// Settings lists the options in force of a [Config], [GPU] or [Schedule].
func Settings(of any) (out []api.Setting) {
	all, is := options(of), make(map[string]string)
	for tag, key := range map[string]string{"chip": "chip", "kind": "card.kind"} {
		if o := find(all, key); o != nil {
			is[tag] = o.text()
		}
	}
	for _, o := range all {
		if o.has("chip", is) && o.has("kind", is) {
			out = append(out, api.Setting{Key: o.path, Value: o.text(), Default: cmp.Or(o.tag.Get(is["chip"]), o.tag.Get("default")), Live: o.live()})
		}
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
			Accepts: Accepts(o.tag.Get("validate")), Help: o.tag.Get("help"), Live: o.live(),
		})
	}
	return out
}
