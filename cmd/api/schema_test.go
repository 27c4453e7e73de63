package api_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/hostcards"
	"github.com/umbra-gpu/umbra/cmd/metrics"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/probe"
)

var update = flag.Bool("update", false, "write the generated reference pages")

// printed are the types that the commands print, and those of the API that are written in parts.
var printed = []any{
	api.Attachment{}, api.Error{}, api.Serving{}, api.GPUReport{}, probe.Device{}, hostcards.Report{}, conformance.Case{}, conformance.Result{},
}

// object is a JSON schema.
type object = map[string]any

// generator makes schemas of Go types, with their comments as descriptions.
type generator struct {
	t        *testing.T
	defs     object
	comments map[string]string   // by package.Type and package.Type.Field
	keys     map[string][]string // properties of a definition, in the order of their declaration
	parents  map[string][]string // properties that refer to a definition
}

// newGenerator makes definitions of all types of the API and in printed.
func newGenerator(t *testing.T) *generator {
	g := &generator{t, object{}, map[string]string{}, map[string][]string{}, map[string][]string{}}
	for _, dir := range []string{"cmd/api", "cmd/hostcards", "aggregator/sched", "mmio", "vfiouser/probe", "vfiouser/conformance", "vfiouser/wire"} {
		g.read(dir)
	}
	counts, rules := metrics.Counters()
	for _, c := range slices.Concat(counts, rules) {
		if c.Rule {
			g.count("Rules", c.Name, c.Help)
		} else {
			g.count("Counts", c.Name, c.Help)
		}
	}
	for _, v := range printed {
		g.of(reflect.TypeOf(v))
	}
	g.paths()
	return g
}

// count adds a counter to the definition of a map of counters.
func (g *generator) count(def, name, help string) {
	if g.defs[def] == nil {
		g.defs[def] = object{"type": "object", "properties": object{}, "additionalProperties": false}
	}
	require.Regexp(g.t, snakeCase, name)
	require.NotContains(g.t, g.keys[def], name)
	g.defs[def].(object)["properties"].(object)[name] = object{"type": "integer", "minimum": 0, "description": help}
	g.keys[def] = append(g.keys[def], name)
}

// read collects the comments of a package of this module.
func (g *generator) read(dir string) {
	files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	require.NoError(g.t, err)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(g.t, err)
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range decl.Specs {
				typ, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				key := path.Base(dir) + "." + typ.Name.Name
				g.comments[key] = decl.Doc.Text() + typ.Doc.Text()
				if s, ok := typ.Type.(*ast.StructType); ok {
					for _, field := range s.Fields.List {
						for _, n := range field.Names {
							g.comments[key+"."+n.Name] = field.Doc.Text() + field.Comment.Text()
						}
					}
				}
			}
		}
	}
}

func (g *generator) describe(o object, key string) object {
	if text := strings.Join(strings.Fields(g.comments[key]), " "); text != "" {
		o["description"] = text
	}
	return o
}

// of is the schema of values of a type; a struct gets a definition of its own.
func (g *generator) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return object{"type": "object"}
	case t.Kind() == reflect.Pointer:
		return g.of(t.Elem())
	}
	switch k := t.Kind(); k {
	case reflect.Interface:
		return object{}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Slice:
		return object{"type": "array", "items": g.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": g.of(t.Elem())}
	case reflect.Struct:
		name := strings.TrimPrefix(t.String(), "api.")
		if _, ok := g.defs[name]; !ok {
			o := object{}
			g.defs[name] = o // before its fields: types may contain themselves
			properties, required := object{}, []string{}
			g.fields(name, t, properties, &required)
			o["type"], o["properties"], o["required"], o["additionalProperties"] = "object", properties, required, false
			g.describe(o, t.String())
		}
		return object{"$ref": "#/$defs/" + name}
	default:
		require.True(g.t, k >= reflect.Int && k <= reflect.Uint64, "%v: no such values are printed", t)
		o := object{"type": "integer"}
		if k >= reflect.Uint {
			o["minimum"] = 0
		}
		return o
	}
}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func (g *generator) fields(def string, t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, omit, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-", !f.IsExported():
			continue
		case f.Anonymous && name == "":
			g.fields(def, f.Type, properties, required)
			continue
		}
		require.Regexp(g.t, snakeCase, name, "%v.%s", t, f.Name)
		require.Equal(g.t, f.Type == reflect.TypeFor[time.Duration](), strings.HasSuffix(name, "_ns"), "%v.%s: %s", t, f.Name, name)
		value := object{}
		switch key := t.String() + "." + f.Name; key {
		case "api.GPU.Counts":
			value["$ref"] = "#/$defs/Counts"
		case "api.GPU.RulesBroken":
			value["$ref"] = "#/$defs/Rules"
		default:
			value = g.of(f.Type)
		}
		items, _ := value["items"].(object)
		for _, o := range []object{value, items} {
			if ref, ok := o["$ref"].(string); ok {
				ref = path.Base(ref)
				if !slices.Contains(g.parents[ref], name) {
					g.parents[ref] = append(g.parents[ref], name)
				}
			}
		}
		if help := f.Tag.Get("help"); help != "" {
			value["description"] = help
		}
		properties[name] = g.describe(value, t.String()+"."+f.Name)
		g.keys[def] = append(g.keys[def], name)
		if omit == "" {
			*required = append(*required, name)
		}
	}
}

// generated holds a page of docs/reference against what it is generated from, or writes it.
func generated(t *testing.T, name, text string) {
	t.Helper()
	page := filepath.Join("../../docs/reference", name)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
	}
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, text, string(have), "make reference writes it")
}

// TestSchema: the OpenAPI file in docs/reference is that of the types and routes, keys are in
// snake_case, and durations are in keys that end in _ns.
func TestSchema(t *testing.T) {
	g := newGenerator(t)
	want, err := json.MarshalIndent(object{
		"openapi":    "3.1.1",
		"info":       object{"title": "Umbra's control API and the JSON of its commands", "version": "1", "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers":    []object{{"url": "http://umbra", "description": "any name, over the control socket"}},
		"paths":      g.paths(),
		"components": object{"schemas": g.defs},
	}, "", "  ")
	require.NoError(t, err)
	generated(t, "openapi.json", strings.ReplaceAll(string(want), "#/$defs/", "#/components/schemas/")+"\n")

	want, err = json.Marshal(object{"$defs": g.defs})
	require.NoError(t, err)
	var schema jsonschema.Schema
	require.NoError(t, json.Unmarshal(want, &schema))
	_, err = schema.Resolve(nil)
	require.NoError(t, err)
	require.NotEmpty(t, schema.Defs)
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// paths are the requests of the API.
func (g *generator) paths() object {
	content := func(of any) object {
		return object{"application/json": object{"schema": g.of(reflect.TypeOf(of))}}
	}
	answered := func(of any) object {
		if of == nil {
			return object{"application/octet-stream": object{}}
		}
		return content(of)
	}
	paths := object{"/metrics": object{"get": object{"summary": "The numbers in counters.md, for Prometheus.", "operationId": "metrics", "responses": object{
		"200": object{"description": "Prometheus' text format", "content": object{"text/plain": object{"schema": object{"type": "string"}}}},
	}}}}
	for _, r := range api.Routes() {
		method, at, _ := strings.Cut(r.Pattern, " ")
		method = strings.ToLower(method)
		parameters := []object{}
		for _, name := range pathParameter.FindAllStringSubmatch(at, -1) {
			parameters = append(parameters, object{"name": name[1], "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		for _, name := range slices.Sorted(maps.Keys(r.Query)) {
			parameters = append(parameters, object{"name": name, "in": "query", "description": r.Query[name], "schema": object{"type": "string"}})
		}
		operation := object{
			"summary": r.About, "operationId": method + strings.NewReplacer("/v1", "", "{", "", "}", "", "/", "_").Replace(at), "parameters": parameters,
			"responses": object{
				"200":     object{"description": "done", "content": answered(r.Answer)},
				"default": object{"description": "not done", "content": content(api.Error{})},
			},
		}
		if r.Body != nil {
			operation["requestBody"] = object{"required": true, "content": content(r.Body)}
		}
		if paths[at] == nil {
			paths[at] = object{}
		}
		paths[at].(object)[method] = operation
	}
	return paths
}
