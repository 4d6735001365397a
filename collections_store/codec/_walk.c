/* bytes_left of walk.py, compiled: see there. No Python code runs here. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define MAX_DEPTH 200
#define SPELLED_OUT 1e16
#define ODD (-1)

static long long walk(PyObject *container, int depth, long long remaining);

static long long
value_left(PyObject *value, int depth, long long remaining)
{
    if (Py_IS_TYPE(value, &PyUnicode_Type)) {
        return remaining - PyUnicode_GetLength(value);
    }
    if (Py_IS_TYPE(value, &PyLong_Type)) {
        int overflow;
        PyLong_AsLongLongAndOverflow(value, &overflow);
        return overflow ? ODD : remaining;
    }
    if (Py_IS_TYPE(value, &PyDict_Type) || Py_IS_TYPE(value, &PyList_Type)) {
        return depth == MAX_DEPTH ? ODD : walk(value, depth + 1, remaining);
    }
    if (Py_IS_TYPE(value, &PyFloat_Type)) {
        double number = PyFloat_AsDouble(value);
        return -SPELLED_OUT < number && number < SPELLED_OUT ? remaining : ODD;
    }
    return value == Py_None || Py_IS_TYPE(value, &PyBool_Type) ? remaining : ODD;
}

static long long
walk(PyObject *container, int depth, long long remaining)
{
    PyObject *value;
    Py_ssize_t position = 0;
    if (Py_IS_TYPE(container, &PyDict_Type)) {
        remaining -= 2 * PyDict_Size(container);
        while (remaining >= 0 && PyDict_Next(container, &position, NULL, &value)) {
            remaining = value_left(value, depth, remaining);
        }
        return remaining;
    }
    Py_ssize_t size = PyList_Size(container);
    remaining -= 2 * size;
    for (; remaining >= 0 && position < size; position++) {
        remaining = value_left(PyList_GetItem(container, position), depth, remaining);
    }
    return remaining;
}

static PyObject *
bytes_left(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "bytes_left takes a body and a number");
        return NULL;
    }
    int overflow;
    long long most = PyLong_AsLongLongAndOverflow(arguments[1], &overflow);
    if (most == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (overflow) {
        most = overflow > 0 ? LLONG_MAX : -1;
    }
    return PyLong_FromLongLong(value_left(arguments[0], 0, most));
}

static PyMethodDef functions[] = {
    {"bytes_left", (PyCFunction)(void (*)(void))bytes_left, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_walk", .m_methods = functions, .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__walk(void)
{
    return PyModuleDef_Init(&definition);
}
