package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Validate holds the JSON of a report against the schema, and says where it is
// not as described. It knows the keywords that the schema uses.
func Validate(data []byte) (wrong []string, err error) {
	var v, s any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(JSONSchema, &s); err != nil {
		return nil, fmt.Errorf("the schema itself: %w", err)
	}
	root := s.(map[string]any)
	c := checker{defs: root["$defs"].(map[string]any)}
	c.check(root, v, "report")
	return c.wrong, nil
}

// checker walks a value beside its schema.
type checker struct {
	defs  map[string]any
	wrong []string
}

func (c *checker) fail(at, format string, args ...any) {
	c.wrong = append(c.wrong, at+": "+fmt.Sprintf(format, args...))
}

func (c *checker) check(s map[string]any, v any, at string) {
	if name, ok := s["$ref"].(string); ok {
		c.check(c.defs[strings.TrimPrefix(name, "#/$defs/")].(map[string]any), v, at)
		return
	}
	if want, ok := s["const"]; ok && v != want {
		c.fail(at, "%v is not %v", v, want)
	}
	if want, ok := s["enum"].([]any); ok && !slices.Contains(want, v) {
		c.fail(at, "%v is none of %v", v, want)
	}
	want, typed := s["type"].(string)
	if got := typeOf(v); typed && got != want && (want != "number" || got != "integer") {
		c.fail(at, "is of type %s, want %s", got, want)
		return
	}
	switch v := v.(type) {
	case float64:
		if least, ok := s["minimum"].(float64); ok && v < least {
			c.fail(at, "%v is less than %v", v, least)
		}
	case []any:
		if items, ok := s["items"].(map[string]any); ok {
			for i, x := range v {
				c.check(items, x, fmt.Sprintf("%s[%d]", at, i))
			}
		}
	case map[string]any:
		c.object(s, v, at)
	}
}

func (c *checker) object(s, v map[string]any, at string) {
	if required, ok := s["required"].([]any); ok {
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				c.fail(at, "has no %v", name)
			}
		}
	}
	known, _ := s["properties"].(map[string]any)
	others, _ := s["additionalProperties"].(map[string]any) // or false
	for _, name := range slices.Sorted(maps.Keys(v)) {
		sub, ok := known[name].(map[string]any)
		switch {
		case ok:
			c.check(sub, v[name], at+"."+name)
		case others != nil:
			c.check(others, v[name], at+"."+name)
		default:
			c.fail(at, "has %s, which is not in the schema", name)
		}
	}
}

func typeOf(v any) string {
	switch x := v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		if x == math.Trunc(x) {
			return "integer"
		}
		return "number"
	}
	return "null"
}
