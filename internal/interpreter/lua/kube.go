package lua

import (
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	glua "github.com/yuin/gopher-lua"

	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

func (m *machine) kubeFunctions() map[string]glua.LGFunction {
	return map[string]glua.LGFunction{
		"accuratePodRequirements": m.accuratePodRequirements, "getPodDependencies": m.getPodDependencies,
		"getResourceQuantity": m.getResourceQuantity, "resourceAdd": m.resourceAdd,
	}
}

// accuratePodRequirements returns what one pod of a template needs.
func (m *machine) accuratePodRequirements(l *glua.LState) int {
	requirements, err := podspec.Requirements(m.podSpec(l), "")
	if err != nil {
		l.RaiseError("accuratePodRequirements: %s", err.Error())
	}
	if requirements == nil {
		l.Push(glua.LNil)
		return 1
	}
	converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(requirements)
	if err != nil {
		l.RaiseError("accuratePodRequirements: %s", err.Error())
	}
	return m.pushValue(l, converted)
}

// getPodDependencies returns the objects of a namespace that pods of a template refer to.
func (m *machine) getPodDependencies(l *glua.LState) int {
	dependencies, err := podspec.Dependencies(m.podSpec(l), l.OptString(2, "default"))
	if err != nil {
		l.RaiseError("getPodDependencies: %s", err.Error())
	}
	list := make([]any, len(dependencies))
	for i := range dependencies {
		if list[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&dependencies[i]); err != nil {
			l.RaiseError("getPodDependencies: %s", err.Error())
		}
	}
	return m.pushValue(l, list)
}

// getResourceQuantity returns a quantity as a number, 0 for nil.
func (m *machine) getResourceQuantity(l *glua.LState) int {
	q := m.quantity(l, 1)
	l.Push(glua.LNumber(q.AsApproximateFloat64()))
	return 1
}

// resourceAdd returns the sum of its arguments as a quantity.
func (m *machine) resourceAdd(l *glua.LState) int {
	var sum resource.Quantity
	for i := range l.GetTop() {
		sum.Add(m.quantity(l, i+1))
	}
	return m.push(l, sum.String())
}

func (m *machine) quantity(l *glua.LState, n int) resource.Quantity {
	m.budget.work(l, 10)
	switch v := l.Get(n).(type) {
	case *glua.LNilType:
		return resource.Quantity{}
	case glua.LString, glua.LNumber:
		q, err := podspec.Quantity(v.String())
		if err != nil {
			badArgument(l, n, "%s", err)
		}
		return q
	}
	l.TypeError(n, glua.LTString)
	return resource.Quantity{}
}

// podSpec returns the spec of the pod template passed as the first argument. A template without one needs nothing.
func (m *machine) podSpec(l *glua.LState) map[string]any {
	value, err := m.convert.fromLua(l.CheckTable(1))
	if err != nil {
		badArgument(l, 1, "%s", err)
	}
	m.budget.work(l, m.convert.nodes)
	m.budget.alloc(l, m.convert.nodes*slotCost)
	template, _ := value.(map[string]any)
	spec, _, err := fields.Map(template, "spec")
	if err != nil {
		badArgument(l, 1, "%s", err)
	}
	return spec
}

func (m *machine) pushValue(l *glua.LState, value any) int {
	converted, err := m.convert.toLua(value)
	if err != nil {
		l.RaiseError("%s", err.Error())
	}
	l.Push(converted)
	return 1
}
