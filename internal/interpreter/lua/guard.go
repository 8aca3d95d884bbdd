package lua

import (
	"fmt"

	"github.com/yuin/gopher-lua/ast"
)

// Functions called by guarded operations. Their names are not Lua identifiers, so a script cannot use them by
// accident; a script that replaces them only breaks its own operations.
const (
	concatFunction = "\x00concat"
	storeFunction  = "\x00store"
	keyFunction    = "\x00key"
	tableFunction  = "\x00table"
)

// guard rewrites a script so that operations whose cost depends on their operands call these functions. It rejects
// scripts that nest too deeply for the recursive passes.
func guard(chunk []ast.Stmt) (err error) {
	defer func() {
		if r := recover(); r != nil {
			deep, ok := r.(tooDeep)
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("line %d nests deeper than %d levels", deep.line, maxSyntaxDepth)
		}
	}()
	new(guarding).block(chunk)
	return nil
}

type guarding struct{ depth int }

type tooDeep struct{ line int }

func (g *guarding) enter(n ast.PositionHolder) {
	if g.depth++; g.depth > maxSyntaxDepth {
		panic(tooDeep{line: n.Line()})
	}
}

func (g *guarding) block(stmts []ast.Stmt) {
	for i, stmt := range stmts {
		stmts[i] = g.stmt(stmt)
	}
}

func (g *guarding) stmt(stmt ast.Stmt) ast.Stmt {
	g.enter(stmt)
	defer func() { g.depth-- }()
	switch s := stmt.(type) {
	case *ast.AssignStmt:
		g.exprs(s.Lhs)
		g.exprs(s.Rhs)
		return g.assignment(s)
	case *ast.LocalAssignStmt:
		g.exprs(s.Exprs)
	case *ast.FuncCallStmt:
		s.Expr = g.expr(s.Expr)
	case *ast.DoBlockStmt:
		g.block(s.Stmts)
	case *ast.WhileStmt:
		s.Condition = g.expr(s.Condition)
		g.block(s.Stmts)
	case *ast.RepeatStmt:
		s.Condition = g.expr(s.Condition)
		g.block(s.Stmts)
	case *ast.IfStmt:
		s.Condition = g.expr(s.Condition)
		g.block(s.Then)
		g.block(s.Else)
	case *ast.NumberForStmt:
		s.Init, s.Limit = g.expr(s.Init), g.expr(s.Limit)
		if s.Step != nil {
			s.Step = g.expr(s.Step)
		}
		g.block(s.Stmts)
	case *ast.GenericForStmt:
		g.exprs(s.Exprs)
		g.block(s.Stmts)
	case *ast.FuncDefStmt:
		if s.Name.Func != nil {
			s.Name.Func = g.expr(s.Name.Func)
		}
		if s.Name.Receiver != nil {
			s.Name.Receiver = g.expr(s.Name.Receiver)
		}
		g.block(s.Func.Stmts)
	case *ast.ReturnStmt:
		g.exprs(s.Exprs)
	}
	return stmt
}

func (g *guarding) exprs(exprs []ast.Expr) {
	for i, expr := range exprs {
		exprs[i] = g.expr(expr)
	}
}

func (g *guarding) expr(expr ast.Expr) ast.Expr {
	g.enter(expr)
	defer func() { g.depth-- }()
	switch e := expr.(type) {
	case *ast.AttrGetExpr:
		e.Object, e.Key = g.expr(e.Object), g.expr(e.Key)
	case *ast.TableExpr:
		return g.table(e)
	case *ast.FuncCallExpr:
		if e.Func != nil {
			e.Func = g.expr(e.Func)
		}
		if e.Receiver != nil {
			e.Receiver = g.expr(e.Receiver)
		}
		g.exprs(e.Args)
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = g.expr(e.Lhs), g.expr(e.Rhs)
	case *ast.RelationalOpExpr:
		e.Lhs, e.Rhs = g.expr(e.Lhs), g.expr(e.Rhs)
	case *ast.ArithmeticOpExpr:
		e.Lhs, e.Rhs = g.expr(e.Lhs), g.expr(e.Rhs)
	case *ast.StringConcatOpExpr:
		return g.concat(e)
	case *ast.UnaryMinusOpExpr:
		e.Expr = g.expr(e.Expr)
	case *ast.UnaryNotOpExpr:
		e.Expr = g.expr(e.Expr)
	case *ast.UnaryLenOpExpr:
		e.Expr = g.expr(e.Expr)
	case *ast.FunctionExpr:
		g.block(e.Stmts)
	}
	return expr
}

// concat joins a whole chain of concatenations at once, as the machine itself would.
func (g *guarding) concat(e *ast.StringConcatOpExpr) ast.Expr {
	const perCall = 100 // below the number of registers a function has
	var operands []ast.Expr
	for {
		operands = append(operands, single(g.expr(e.Lhs)))
		next, chained := e.Rhs.(*ast.StringConcatOpExpr)
		if !chained {
			operands = append(operands, single(g.expr(e.Rhs)))
			break
		}
		e = next
	}
	joined := call(e, concatFunction, operands[:min(perCall, len(operands))]...)
	for at := perCall; at < len(operands); at += perCall {
		next := operands[at:min(at+perCall, len(operands))]
		joined = call(e, concatFunction, append([]ast.Expr{joined}, next...)...)
	}
	return joined
}

func (g *guarding) table(e *ast.TableExpr) ast.Expr {
	for _, field := range e.Fields {
		if field.Key != nil {
			field.Key = g.expr(field.Key)
			if _, constant := field.Key.(*ast.StringExpr); !constant {
				field.Key = call(e, keyFunction, field.Key)
			}
		}
		field.Value = g.expr(field.Value)
	}
	return call(e, tableFunction, e)
}

// assignment turns stores under computed keys into calls. A store under a constant name stays as it is: it costs
// one step and at most one slot.
func (g *guarding) assignment(s *ast.AssignStmt) ast.Stmt {
	computed := false
	for _, target := range s.Lhs {
		computed = computed || isComputed(target)
	}
	if !computed {
		return s
	}
	if len(s.Lhs) == 1 && len(s.Rhs) == 1 {
		target, _ := s.Lhs[0].(*ast.AttrGetExpr)
		return callStmt(s, storeFunction, target.Object, target.Key, s.Rhs[0])
	}
	return assignThroughLocals(s)
}

// assignThroughLocals keeps the semantics of a multiple assignment in Lua: everything is evaluated before anything
// is assigned.
func assignThroughLocals(s *ast.AssignStmt) ast.Stmt {
	var names []string
	var exprs []ast.Expr
	local := func(name string, expr ast.Expr) ast.Expr {
		names, exprs = append(names, name), append(exprs, single(expr))
		return ident(s, name)
	}
	values := make([]string, len(s.Lhs))
	stores := make([]ast.Stmt, len(s.Lhs))
	for i, target := range s.Lhs {
		values[i] = fmt.Sprintf("\x00value%d", i)
		value := ident(s, values[i])
		attr, isAttr := target.(*ast.AttrGetExpr)
		switch {
		case isComputed(target):
			object := local(fmt.Sprintf("\x00object%d", i), attr.Object)
			key := local(fmt.Sprintf("\x00key%d", i), attr.Key)
			stores[i] = callStmt(s, storeFunction, object, key, value)
		case isAttr:
			to := at(s, &ast.AttrGetExpr{Object: local(fmt.Sprintf("\x00object%d", i), attr.Object), Key: attr.Key})
			stores[i] = at(s, &ast.AssignStmt{Lhs: []ast.Expr{to}, Rhs: []ast.Expr{value}})
		default:
			stores[i] = at(s, &ast.AssignStmt{Lhs: []ast.Expr{target}, Rhs: []ast.Expr{value}})
		}
	}
	stmts := []ast.Stmt{
		at(s, &ast.LocalAssignStmt{Names: names, Exprs: exprs}),
		at(s, &ast.LocalAssignStmt{Names: values, Exprs: s.Rhs}),
	}
	return at(s, &ast.DoBlockStmt{Stmts: append(stmts, stores...)})
}

func isComputed(target ast.Expr) bool {
	attr, ok := target.(*ast.AttrGetExpr)
	if !ok {
		return false
	}
	_, constant := attr.Key.(*ast.StringExpr)
	return !constant
}

func call(where ast.PositionHolder, function string, args ...ast.Expr) *ast.FuncCallExpr {
	args[len(args)-1] = single(args[len(args)-1])
	return at(where, &ast.FuncCallExpr{Func: ident(where, function), Args: args, AdjustRet: true})
}

func callStmt(where ast.PositionHolder, function string, args ...ast.Expr) ast.Stmt {
	return at(where, &ast.FuncCallStmt{Expr: call(where, function, args...)})
}

// single makes an expression that may yield several values yield one.
func single(expr ast.Expr) ast.Expr {
	switch e := expr.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
	}
	return expr
}

func ident(where ast.PositionHolder, name string) ast.Expr {
	return at(where, &ast.IdentExpr{Value: name})
}

func at[T ast.PositionHolder](where ast.PositionHolder, node T) T {
	node.SetLine(where.Line())
	node.SetLastLine(where.LastLine())
	return node
}
