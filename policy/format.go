package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// MarshalJSON returns the policy in the form that [Parse] reads. It fails if the
// policy has functions other than [ByOrigin] and [ByRoute].
func (p Policy) MarshalJSON() ([]byte, error) {
	object, err := format(p.Settings)
	if err != nil {
		return nil, err
	}
	routes := make([]map[string]any, len(p.Routes))
	for i, r := range p.Routes {
		if routes[i], err = format(r.Settings); err != nil {
			return nil, fmt.Errorf("route %q: %w", r.Pattern, err)
		}
		routes[i]["pattern"] = r.Pattern
		if r.Name != "" {
			routes[i]["name"] = r.Name
		}
	}
	if len(routes) > 0 {
		object["routes"] = routes
	}
	return json.Marshal(object)
}

func format(s Settings) (map[string]any, error) {
	object := map[string]any{}
	for r, v := range s.all() {
		if v.IsZero() {
			continue
		}
		text := r.show(v)
		if v.Kind() == reflect.Func && text == aFunction {
			return nil, fmt.Errorf("%s is a function, which JSON cannot hold", r)
		}
		value := v.Interface()
		switch v.Interface().(type) {
		case Toggle:
			value = v.Int() == On
		case time.Duration, KeyFunc:
			value = text
		default:
			if isOff(v) {
				value = text
			}
		}
		parent := object
		if r.named {
			parent = nested(nested(object, "budgets"), r.budget)
		} else if r.section != "" {
			parent = nested(object, snake(r.section))
		}
		parent[snake(r.name)] = value
	}
	return object, nil
}

func nested(object map[string]any, key string) map[string]any {
	if object[key] == nil {
		object[key] = map[string]any{}
	}
	return object[key].(map[string]any)
}
