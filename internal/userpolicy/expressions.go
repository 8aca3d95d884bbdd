package userpolicy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/parser"
)

// authorizer is the variable with which CEL expressions ask for the rights of the user. Cells accept whatever gateways have authorized, so
// in a cell everybody seems to have all rights.
const authorizer = "authorizer"

// expressionFields are the fields of policies and webhooks that contain CEL expressions, wherever they are.
var expressionFields = map[string]bool{"expression": true, "messageExpression": true, "valueExpression": true}

// CheckRights returns which expression of an object asks for rights, in one sentence, or nil.
func (k Kind) CheckRights(object map[string]any) error {
	for _, field := range []string{"spec", "webhooks"} {
		if path := asksForRights(object[field], field); path != "" {
			return fmt.Errorf("%s: %s is not available, because cells accept what gateways have authorized and everybody seems to have all rights there; use request.userInfo", path, authorizer)
		}
	}
	return nil
}

// asksForRights returns the path of the first expression in a value that uses the authorizer, or "".
func asksForRights(value any, path string) string {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			if found := asksForRights(item, fmt.Sprintf("%s[%d]", path, i)); found != "" {
				return found
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			at := path + "." + name
			if expression, ok := value[name].(string); ok && expressionFields[name] && usesAuthorizer(expression) {
				return at
			}
			if found := asksForRights(value[name], at); found != "" {
				return found
			}
		}
	}
	return ""
}

// usesAuthorizer reports whether a CEL expression uses the variable. One that cannot be parsed does not: API servers refuse it.
func usesAuthorizer(expression string) bool {
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true))
	if err != nil {
		return false // it depends on the options only
	}
	parsed, problems := p.Parse(common.NewTextSource(expression))
	if len(problems.GetErrors()) > 0 {
		return false
	}
	found := false
	ast.PreOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.IdentKind && e.AsIdent() == authorizer
	}))
	return found
}
