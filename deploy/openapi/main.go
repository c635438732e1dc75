// Command openapi is the plugin of buf that writes openapi.json: the calls of the API over HTTP, as JSON. `make generate` runs it.
package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

// object is an object of JSON, whose keys are written in order.
type object = map[string]any

func main() {
	protogen.Options{}.Run(func(plugin *protogen.Plugin) error {
		plugin.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
		paths, schemas := object{}, object{"Error": failure()}
		for _, file := range plugin.Files {
			if !file.Generate {
				continue
			}
			for _, service := range file.Services {
				for _, method := range service.Methods {
					if !method.Desc.IsStreamingClient() && !method.Desc.IsStreamingServer() {
						paths[fmt.Sprintf("/%s/%s", service.Desc.FullName(), method.Desc.Name())] = object{"post": operation(method)}
					}
				}
			}
			addMessages(schemas, file.Messages)
			addEnums(schemas, file.Enums)
		}
		data, err := json.MarshalIndent(object{
			"openapi": "3.1.0",
			"info":    object{"title": "Waggle", "version": "v1", "description": "The unary calls of the dispatcher over HTTP. See README.md, and http.md for curl."},
			"paths":   paths, "components": object{
				"schemas": schemas, "securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
			},
			"security": []object{{}, {"token": []string{}}},
		}, "", " ")
		if err != nil {
			return err
		}
		_, err = plugin.NewGeneratedFile("openapi.json", "").Write(append(data, '\n'))
		return err
	})
}

// failure is the answer of a call that failed.
func failure() object {
	text := object{"type": "string"}
	return object{"type": "object", "properties": object{
		"code": text, "message": text, "details": object{"type": "array", "items": object{"type": "object", "properties": object{
			"type": text, "value": object{"type": "string", "contentEncoding": "base64"}, "debug": object{"type": "object"},
		}}},
	}}
}

func operation(method *protogen.Method) object {
	content := func(schema object) object { return object{"application/json": object{"schema": schema}} }
	return object{
		"operationId": string(method.Parent.Desc.Name()) + "." + string(method.Desc.Name()), "tags": []string{string(method.Parent.Desc.Name())},
		"description": text(method.Comments), "requestBody": object{"required": true, "content": content(reference(method.Input.Desc))},
		"responses": object{
			"200":     object{"description": "The answer.", "content": content(reference(method.Output.Desc))},
			"default": object{"description": "A failure.", "content": content(object{"$ref": "#/components/schemas/Error"})},
		},
	}
}

func text(comments protogen.CommentSet) string {
	return strings.TrimSpace(strings.ReplaceAll(string(comments.Leading), "\n ", "\n"))
}

func addMessages(schemas object, messages []*protogen.Message) {
	for _, message := range messages {
		if message.Desc.IsMapEntry() {
			continue
		}
		properties := object{}
		for _, field := range message.Fields {
			properties[field.Desc.JSONName()] = described(property(field.Desc), text(field.Comments))
		}
		// Others are not ruled out: requests may have the names of the protobuf files, and answers the fields of a later version.
		schemas[name(message.Desc)] = described(object{"type": "object", "properties": properties}, text(message.Comments))
		addMessages(schemas, message.Messages)
		addEnums(schemas, message.Enums)
	}
}

func addEnums(schemas object, enums []*protogen.Enum) {
	for _, enum := range enums {
		var names []string
		for _, value := range enum.Values {
			names = append(names, string(value.Desc.Name()))
		}
		schemas[name(enum.Desc)] = described(object{"type": "string", "enum": names}, text(enum.Comments))
	}
}

func described(schema object, description string) object {
	if description != "" {
		schema["description"] = description
	}
	return schema
}

// name is the name of a schema.
func name(of protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(of.FullName()), string(of.ParentFile().Package())+".")
}

func property(field protoreflect.FieldDescriptor) object {
	switch {
	case field.IsMap():
		return object{"type": "object", "additionalProperties": single(field.MapValue())}
	case field.IsList():
		return object{"type": "array", "items": single(field)}
	}
	return single(field)
}

// single is a value as the mapping of protobuf to JSON has it.
func single(field protoreflect.FieldDescriptor) object {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return reference(field.Message())
	case protoreflect.EnumKind:
		return object{"$ref": "#/components/schemas/" + name(field.Enum())}
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.StringKind:
		return object{"type": "string"}
	case protoreflect.BytesKind:
		return object{"type": "string", "contentEncoding": "base64"}
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return object{"type": "number"}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Uint64Kind, protoreflect.Sfixed64Kind, protoreflect.Fixed64Kind:
		return object{"type": "string", "format": "int64"}
	default:
		return object{"type": "integer", "format": "int32"}
	}
}

func reference(message protoreflect.MessageDescriptor) object {
	switch message.FullName() {
	case "google.protobuf.Duration":
		return object{"type": "string", "examples": []string{"1.5s"}}
	case "google.protobuf.Timestamp":
		return object{"type": "string", "format": "date-time"}
	case "google.protobuf.FieldMask":
		return object{"type": "string"}
	}
	return object{"$ref": "#/components/schemas/" + name(message)}
}
