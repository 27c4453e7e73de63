package machine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
)

// TestColumnsOfMachines: what the steps call by a name of their own is described. No machine is
// booted for it; those that tests boot do not go through all steps.
func TestColumnsOfMachines(t *testing.T) {
	seen := 0
	for _, name := range []string{"steps.go", "bells.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			text, named := call.Args[0].(*ast.BasicLit)
			if !ok || !named || method.Sel.Name != "Phase" && method.Sel.Name != "Figure" {
				return true
			}
			what, err := strconv.Unquote(text.Value)
			require.NoError(t, err)
			seen++
			figure := method.Sel.Name == "Figure"
			require.True(t, slices.ContainsFunc(Scenarios(), func(s string) bool {
				return report.ColumnOf(s, report.InMachine, what, figure) != nil
			}), "%s %s of %s is not in report.Columns", method.Sel.Name, what, name)
			return true
		})
	}
	require.Greater(t, seen, 20)
}
