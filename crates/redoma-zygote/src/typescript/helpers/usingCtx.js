function usingCtx() {
  const nothing = {};
  const resources = [];
  const add = (value, isAsync) => {
    let dispose;
    if (value != null) {
      if (isAsync) dispose = value[Symbol.asyncDispose];
      dispose ??= value[Symbol.dispose];
      if (typeof dispose !== "function") throw new TypeError("`using` needs a value that is disposable, null or undefined");
    }
    resources.push({ value, dispose, isAsync });
    return value;
  };
  const suppress = (error, suppressed) =>
    typeof SuppressedError === "function"
      ? new SuppressedError(error, suppressed)
      : Object.assign(new Error("An error was suppressed during disposal."), { name: "SuppressedError", error, suppressed });
  const context = {
    e: nothing,
    u: (value) => add(value, false),
    a: (value) => add(value, true),
    d() {
      const failed = (error) => {
        context.e = context.e === nothing ? error : suppress(error, context.e);
      };
      const disposeRest = () => {
        while (resources.length > 0) {
          const { value, dispose, isAsync } = resources.pop();
          try {
            const disposed = dispose?.call(value);
            if (isAsync) return Promise.resolve(disposed).catch(failed).then(disposeRest);
          } catch (error) {
            failed(error);
          }
        }
        if (context.e !== nothing) throw context.e;
      };
      return disposeRest();
    },
  };
  return context;
}
