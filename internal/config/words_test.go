package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Whoever is told that their configuration is wrong must not have to look up what would be
// right: each error says what was found, or that nothing or a secret was, and what is
// allowed.
func TestEveryErrorSaysWhatWasFoundAndWhatIsAllowed(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found, allowed := regexp.MustCompile(`\bfound |is missing|not shown`), regexp.MustCompile(`allowed: .`)
	seen := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			text, ok := failure(call)
			if !ok || text == "%s" || text == "%v" { // what another error says
				return true
			}
			seen++
			if !found.MatchString(text) || !allowed.MatchString(text) {
				t.Errorf("%s: this error does not say both what was found and what is allowed: %s", set.Position(call.Pos()), text)
			}
			return true
		})
	}
	if seen < 100 {
		t.Errorf("only %d errors were looked at: they are no longer made by calls of fail", seen)
	}
}

// failure returns the text of a call that says what is wrong with a value.
func failure(call *ast.CallExpr) (string, bool) {
	name := ""
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		name = fun.Name
	case *ast.SelectorExpr:
		name = fun.Sel.Name
	}
	if name != "fail" {
		return "", false
	}
	for _, arg := range call.Args {
		if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, " ") {
			text, err := strconv.Unquote(lit.Value)
			return text, err == nil
		}
	}
	return "", false
}
