package api_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/probe"
)

var update = flag.Bool("update", false, "write the schema")

const schemaFile = "../../docs/reference/api.schema.json"

// printed are the types that the control API answers and the commands print.
var printed = []any{
	api.Status{}, api.Report{}, api.GPU{}, api.GPUReport{}, api.Scheduler{}, api.RegisterTable{}, api.Error{}, api.Serving{},
	api.AddRequest{}, api.SetRequest{}, probe.Device{}, conformance.Case{}, conformance.Result{},
}

// object is a JSON schema.
type object = map[string]any

// generator makes schemas of Go types, with their comments as descriptions.
type generator struct {
	t        *testing.T
	defs     object
	comments map[string]string // by package.Type and package.Type.Field
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
			g.fields(t, properties, &required)
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

func (g *generator) fields(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, omit, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-", !f.IsExported():
			continue
		case f.Anonymous && name == "":
			g.fields(f.Type, properties, required)
			continue
		}
		require.Regexp(g.t, snakeCase, name, "%v.%s", t, f.Name)
		require.Equal(g.t, f.Type == reflect.TypeFor[time.Duration](), strings.HasSuffix(name, "_ns"), "%v.%s: %s", t, f.Name, name)
		properties[name] = g.describe(g.of(f.Type), t.String()+"."+f.Name)
		if omit == "" {
			*required = append(*required, name)
		}
	}
}

// TestSchema: the schema in docs/reference is the one of the types, keys are in
// snake_case, and durations are in keys that end in _ns.
func TestSchema(t *testing.T) {
	g := &generator{t, object{}, map[string]string{}}
	for _, dir := range []string{"cmd/api", "aggregator/sched", "mmio", "vfiouser/probe", "vfiouser/conformance", "vfiouser/wire"} {
		g.read(dir)
	}
	for _, v := range printed {
		g.of(reflect.TypeOf(v))
	}
	want, err := json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "Umbra's control API and the JSON of its commands",
		"$defs":   g.defs,
	}, "", "  ")
	require.NoError(t, err)
	want = append(want, '\n')
	if *update {
		require.NoError(t, os.WriteFile(schemaFile, want, 0o644))
	}
	have, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	require.Equal(t, string(want), string(have), "go test ./cmd/api -run TestSchema -update writes it")

	var schema jsonschema.Schema
	require.NoError(t, json.Unmarshal(have, &schema))
	_, err = schema.Resolve(nil)
	require.NoError(t, err)
	require.NotEmpty(t, schema.Defs)
}
