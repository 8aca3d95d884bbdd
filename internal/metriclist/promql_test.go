package metriclist

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// query is what an expression of PromQL uses. parseQuery understands the part of the language that is enough for alerts and dashboards, and refuses all else:
// the parser of Prometheus is a dependency of hundreds of modules.
type query struct {
	tokens []string
	// metrics are those that are selected, with the labels by which they are.
	metrics []selected
	// groupings are the labels by which something is aggregated or matched.
	groupings []string
}

type selected struct {
	name   string
	labels []string
	job    string // if it is given
}

// kind is the type of an expression.
type kind string

const (
	scalar kind = "scalar"
	vector kind = "vector"
	series kind = "range of a vector"
)

var (
	token    = regexp.MustCompile(`^(?:\s+|("(?:[^"\\]|\\.)*")|([0-9]+(?:ms|[smhdwy]))|([0-9]+(?:\.[0-9]+)?)|([a-zA-Z_:][a-zA-Z0-9_:]*)|(==|!=|>=|<=|=~|!~|[-+*/%(){}\[\],<>=]))`)
	label    = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	duration = regexp.MustCompile(`^[0-9]+(ms|[smhdwy])$`)
	number   = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
)

// levels are the binary operators, those that bind least first.
var levels = [][]string{{"or"}, {"and", "unless"}, {"==", "!=", ">", "<", ">=", "<="}, {"+", "-"}, {"*", "/", "%"}}

var aggregations = []string{"sum", "min", "max", "avg", "count"}

// functions have the kinds of their arguments, and of their result.
var functions = map[string][]kind{
	"rate": {series, vector}, "increase": {series, vector}, "max_over_time": {series, vector}, "changes": {series, vector},
	"histogram_quantile": {scalar, vector, vector}, "absent": {vector, vector}, "time": {scalar}, "clamp_min": {vector, scalar, vector},
}

func parseQuery(text string) (q *query, err error) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case string:
			err = fmt.Errorf("%s in %s", problem, text)
		default:
			panic(problem)
		}
	}()
	q = &query{}
	for rest := text; rest != ""; {
		found := token.FindString(rest)
		if found == "" {
			panic("unknown text " + rest)
		}
		if rest = rest[len(found):]; strings.TrimSpace(found) != "" {
			q.tokens = append(q.tokens, found)
		}
	}
	if got := q.binary(0); got == series {
		panic("the result is a " + string(got))
	}
	if q.next() != "" {
		panic("unexpected " + q.next())
	}
	return q, nil
}

// next returns the next token, "" at the end.
func (q *query) next() string {
	if len(q.tokens) == 0 {
		return ""
	}
	return q.tokens[0]
}

func (q *query) take() string {
	taken := q.next()
	if taken == "" {
		panic("unexpected end")
	}
	q.tokens = q.tokens[1:]
	return taken
}

// accept takes one of some tokens if it is next.
func (q *query) accept(tokens ...string) bool {
	if slices.Contains(tokens, q.next()) {
		q.take()
		return true
	}
	return false
}

func (q *query) expect(token string) {
	if got := q.take(); got != token {
		panic(fmt.Sprintf("%s instead of %s", got, token))
	}
}

func (q *query) binary(level int) kind {
	if level == len(levels) {
		return q.unary()
	}
	left := q.binary(level + 1)
	for slices.Contains(levels[level], q.next()) {
		operator := q.take()
		if q.accept("on", "ignoring") {
			q.groupings = append(q.groupings, q.list()...)
			if q.accept("group_left", "group_right") && q.next() == "(" {
				q.groupings = append(q.groupings, q.list()...)
			}
		}
		right := q.binary(level + 1)
		switch {
		case left == series || right == series:
			panic(operator + " of a range")
		case level < 2 && (left != vector || right != vector):
			panic(operator + " of a scalar")
		case level == 2 && left == scalar && right == scalar:
			panic("a comparison of scalars")
		case right == vector:
			left = vector
		}
	}
	return left
}

func (q *query) unary() kind {
	q.accept("-")
	of := q.primary()
	if !q.accept("[") {
		return of
	}
	if of != vector || !duration.MatchString(q.take()) {
		panic("a wrong range")
	}
	q.expect("]")
	return series
}

func (q *query) primary() kind {
	first := q.take()
	switch {
	case first == "(":
		of := q.binary(0)
		q.expect(")")
		if q.next() == "[" {
			panic("a range of an expression")
		}
		return of
	case number.MatchString(first):
		return scalar
	case slices.Contains(aggregations, first):
		return q.aggregation()
	case functions[first] != nil && q.next() == "(":
		return q.call(first)
	case label.MatchString(first) && q.next() != "(":
		return q.selector(first)
	}
	panic("unexpected " + first)
}

func (q *query) aggregation() kind {
	grouped := q.grouping()
	q.expect("(")
	if of := q.binary(0); of != vector {
		panic("an aggregation of a " + string(of))
	}
	q.expect(")")
	if !grouped {
		q.grouping()
	}
	if q.next() == "[" {
		panic("a range of an aggregation")
	}
	return vector
}

func (q *query) grouping() bool {
	if !q.accept("by", "without") {
		return false
	}
	q.groupings = append(q.groupings, q.list()...)
	return true
}

// list reads labels in parentheses.
func (q *query) list() (labels []string) {
	q.expect("(")
	for !q.accept(")") {
		name := q.take()
		if !label.MatchString(name) {
			panic(name + " is not a label")
		}
		labels = append(labels, name)
		if q.next() != ")" {
			q.expect(",")
		}
	}
	return labels
}

func (q *query) call(function string) kind {
	signature := functions[function]
	q.expect("(")
	for i, want := range signature[:len(signature)-1] {
		if i > 0 {
			q.expect(",")
		}
		if got := q.binary(0); got != want {
			panic(fmt.Sprintf("%s of a %s, not of a %s", function, got, want))
		}
	}
	q.expect(")")
	if q.next() == "[" {
		panic("a range of a function")
	}
	return signature[len(signature)-1]
}

func (q *query) selector(name string) kind {
	metric := selected{name: name}
	if q.accept("{") {
		for !q.accept("}") {
			matched := q.take()
			if !label.MatchString(matched) {
				panic(matched + " is not a label")
			}
			operator := q.take()
			if !slices.Contains([]string{"=", "!=", "=~", "!~"}, operator) {
				panic(operator + " in a selector")
			}
			value, err := strconv.Unquote(q.take())
			if err != nil {
				panic("a label without a quoted value")
			}
			if _, err := regexp.Compile(value); err != nil && strings.HasSuffix(operator, "~") {
				panic(err.Error())
			}
			metric.labels = append(metric.labels, matched)
			if matched == "job" && operator == "=" {
				metric.job = value
			}
			if q.next() != "}" {
				q.expect(",")
			}
		}
	}
	q.metrics = append(q.metrics, metric)
	return vector
}
